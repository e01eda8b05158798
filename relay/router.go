package relay

import (
	"container/heap"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

// router decides which message goes out next, and which has to wait in the
// table. It alone owns the lanes, the gates, the holds and the window; every
// method takes its lock, and none waits for anything while it holds it. Workers
// come to it: they take a message, publish it, and bring it back with what
// happened.
type router struct {
	cfg    Config
	chunks chunks
	log    *zap.Logger
	emit   func(*outcome) // hands an outcome to the writer; called under the lock, so that outcomes keep their order

	mu        sync.Mutex
	endpoint  gate
	ramp      ramp
	queues    map[string]*queue
	settings  map[string]Settings
	lanes     map[laneKey]*lane
	ring      []*queue // queues with ready messages, served in turn
	delayed   delayHeap
	idle      []*worker // waiting for a message; the last to wait is woken first
	waking    bool      // a worker was woken and has not come yet
	inFlight  int
	successes uint64 // requests that got through, to any queue
	messages  int    // live ones in memory without a durable outcome: the window
	bytes     int    // of their text
	stopped   bool

	cache      map[int64]*message // messages of the table in memory, until their outcome is durable
	cacheBytes int                // of their text
	fit        int                // rows of the table that are asked for at most
	gone       map[int64]bool     // messages that left the table since the last chunk was asked for
	changed    map[int64]bool     // rows of the table that changed since then
	draining   map[*hold]bool     // holds that want the next rows
	due        dueCursor
	parked     map[*hold]bool // lanes that were draining when their queue was held

	room  chan struct{} // capacity 1: the window has shrunk
	alarm chan struct{} // capacity 1: something became due earlier
	load  chan struct{} // capacity 1: there may be something to load
}

func newRouter(cfg Config, log *zap.Logger, emit func(*outcome)) *router {
	return &router{
		cfg:      cfg,
		chunks:   wholeChunks,
		fit:      wholeChunks.queue,
		log:      log,
		emit:     emit,
		queues:   map[string]*queue{},
		settings: map[string]Settings{},
		lanes:    map[laneKey]*lane{},
		cache:    map[int64]*message{},
		gone:     map[int64]bool{},
		changed:  map[int64]bool{},
		draining: map[*hold]bool{},
		parked:   map[*hold]bool{},
		room:     make(chan struct{}, 1),
		alarm:    make(chan struct{}, 1),
		load:     make(chan struct{}, 1),
	}
}

// signal wakes whoever waits on c, or whoever will next.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// add takes live messages in, in commit order.
func (r *router) add(now time.Time, batch []message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range batch {
		m := &batch[i]
		r.messages++
		r.bytes += m.row.Size()
		r.admit(now, m)
	}
}

// admit finds the place of a live message: in memory, or in the table.
func (r *router) admit(now time.Time, m *message) {
	q := r.queueOf(m.row.Queue)
	m.queue, m.taken = q, now
	q.live.add(now)
	q.inMemory++
	if m.row.DeliverAt.After(now) {
		r.deferLive(m, nil, reasonScheduled, m.row.DeliverAt, nil)
		return
	}
	l := r.laneOf(m)
	switch {
	case l != nil && l.hold != nil:
		r.holdBack(l.hold, m)
	case q.hold != nil && l != nil && l.live():
		// Its head is in flight since before the hold: nothing of this lane is
		// in the table, and nothing may get there before the head is back.
		r.wait(l, m)
	case q.hold != nil:
		r.holdBack(q.hold, m)
	case r.shut(now, q):
		r.holdQueue(q, "sending is paused")
		r.admitHeld(m)
	default:
		r.enqueue(now, m)
	}
}

// admitHeld puts a message behind a hold that has just begun.
func (r *router) admitHeld(m *message) {
	if l := r.laneOf(m); l != nil && l.live() {
		r.wait(l, m)
		return
	}
	r.holdBack(m.queue.hold, m)
}

// enqueue puts a message into its lane in memory.
func (r *router) enqueue(now time.Time, m *message) {
	if !m.queue.ordered(m.row.OrderingKey) {
		r.ready(now, m)
		return
	}
	l := r.ensureLane(m.queue, m.row.OrderingKey)
	m.lane = l
	if l.head != nil {
		r.wait(l, m)
		return
	}
	l.head = m
	r.ready(now, m)
}

// ensureLane returns the lane of an ordering key.
func (r *router) ensureLane(q *queue, orderingKey string) *lane {
	l := r.lanes[q.laneKey(orderingKey)]
	if l == nil {
		// The key is copied: a lane may be held for long, and the text that it is
		// a part of must not be kept that long.
		l = &lane{key: q.laneKey(strings.Clone(orderingKey))}
		r.lanes[l.key] = l
	}
	return l
}

func (r *router) wait(l *lane, m *message) {
	m.lane, m.place = l, placeWaiting
	l.waiting.push(m)
}

func (r *router) laneOf(m *message) *lane {
	if !m.queue.ordered(m.row.OrderingKey) {
		return nil
	}
	return r.lanes[m.queue.laneKey(m.row.OrderingKey)]
}

func (r *router) queueOf(name string) *queue {
	q := r.queues[name]
	if q == nil {
		// The name is copied: the row's text must not live as long as the queue.
		q = &queue{name: strings.Clone(name)}
		q.set(r.settings[q.name])
		q.oneLane = q.settings.OrderedByQueue
		r.queues[q.name] = q
	}
	return q
}

// ready lets a message go out as soon as a worker is free.
func (r *router) ready(now time.Time, m *message) {
	m.place, m.since = placeReady, now
	m.queue.ready.push(m)
	r.list(m.queue)
	r.wakeOne()
}

func (r *router) list(q *queue) {
	if !q.listed && !q.ready.empty() {
		q.listed = true
		r.ring = append(r.ring, q)
	}
}

func (r *router) delay(m *message, until time.Time) {
	m.due, m.place = until, placeDelayed
	heap.Push(&r.delayed, m)
	if m.heap == 0 {
		signal(r.alarm)
	}
}

// wakeOne wakes a worker if none is on its way. The one that comes wakes the
// next if there is more to do: so a slow queue gets all workers within moments,
// and a fast one is served by a few, without a wake-up for every message.
func (r *router) wakeOne() {
	n := len(r.idle)
	if n == 0 || r.waking {
		return
	}
	w := r.idle[n-1]
	r.idle = r.idle[:n-1]
	r.waking = true
	signal(w.wake)
}

// take returns the next message for w, or nil when there is none; then w is
// woken when it should ask again.
func (r *router) take(now time.Time, w *worker) *message {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waking = false
	m := r.pick(now)
	if m == nil {
		r.idle = append(r.idle, w)
	} else if len(r.ring) > 0 {
		r.wakeOne()
	}
	return m
}

// pick takes the queues in turn, so that one with a long backlog leaves room
// for the others.
func (r *router) pick(now time.Time) *message {
	if r.stopped || !r.endpoint.permits(now) || !r.ramp.permits(r.inFlight) {
		return nil
	}
	for len(r.ring) > 0 {
		q := r.ring[0]
		r.ring = r.ring[1:]
		if q.ready.empty() || q.inFlight >= r.limit(q) || !q.ramp.permits(q.inFlight) || q.settings.Paused || q.settings.turns() || !q.gate.permits(now) {
			q.listed = false // comes back when a request ends or the gate is due
			continue
		}
		if !q.pace.permits(now) {
			q.listed = false // comes back when its time has come
			signal(r.alarm)
			continue
		}
		m := r.next(q)
		if q.ready.empty() {
			q.listed = false
		} else {
			r.ring = append(r.ring, q)
		}
		q.inFlight++
		r.inFlight++
		m.place = placeFlying
		m.row.Envelope = q.settings.wrappings.of(m.row.ID)
		if m.watched.IsZero() {
			m.watched = now
		}
		m.probesEndpoint = r.endpoint.enter()
		m.probesQueue = q.gate.enter()
		return m
	}
	return nil
}

// next takes a message out of the ready list of a queue. A probe is one that has
// failed less often than others: those that fail whatever the queue does must
// not hide that it is well.
func (r *router) next(q *queue) *message {
	if !r.endpoint.closed && !q.gate.closed {
		return q.ready.pop()
	}
	best := q.ready.head
	for m, n := best.next, r.chunks.probe; m != nil && n > 0; m, n = m.next, n-1 {
		if m.attempts < best.attempts {
			best = m
		}
	}
	q.ready.remove(best)
	return best
}

// limit is the number of requests of a queue that may be in flight.
func (r *router) limit(q *queue) int {
	if q.settings.MaxInFlight > 0 {
		return q.settings.MaxInFlight
	}
	return r.cfg.MaxInFlightPerQueue
}

// finish takes back a message that w has published, and returns the next one
// for w as take does. A nil failure means that the queue accepted it.
func (r *router) finish(now time.Time, w *worker, m *message, receipt Receipt, failure *PublishError) *message {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.queue.inFlight--
	m.queue.lastReturn = now
	r.inFlight--
	m.place = placeNone
	if failure.sent() {
		m.attempts++
	}
	r.settle(now, m, receipt, failure)
	r.list(m.queue)
	next := r.pick(now)
	if next == nil {
		r.idle = append(r.idle, w)
	}
	return next
}

// resolved is called when an outcome is durable.
func (r *router) resolved(batch []*outcome) {
	r.mu.Lock()
	for _, o := range batch {
		m := o.message
		for h := o.hold; h != nil; h = h.into {
			h.pending--
			h.dry = false
		}
		if m.cached {
			if m.goingBack {
				r.changed[m.row.ID] = true
			} else {
				r.gone[m.row.ID] = true
			}
			r.uncache(m)
			continue
		}
		r.messages--
		r.bytes -= m.row.Size()
		if m.queue != nil {
			m.queue.live.remove(m.taken)
		}
	}
	r.mu.Unlock()
	signal(r.room)
	signal(r.load)
}

// record takes in an outcome of a message that does not pass through the lanes.
func (r *router) record(o *outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !o.message.cached {
		r.messages++
		r.bytes += o.row().Size()
	}
	r.emit(o)
}

// full reports whether the window is full.
func (r *router) full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.messages >= r.cfg.WindowMessages || r.bytes >= r.cfg.WindowBytes
}

// stop makes the router give out nothing more; requests in flight come back.
func (r *router) stop() (inFlight int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	return r.inFlight
}

// left is the number of messages in the window: taken in, without a durable
// outcome.
func (r *router) left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.messages
}
