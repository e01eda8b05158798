package relay

import (
	"container/heap"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// router decides which message goes out next. It alone owns the lanes, the
// gates and the window; every method takes its lock, and none waits for
// anything while it holds it. Workers come to it: they take a message, publish
// it, and bring it back with what happened.
type router struct {
	cfg Config
	log *zap.Logger

	mu       sync.Mutex
	endpoint gate
	queues   map[string]*queue
	lanes    map[laneKey]*lane
	ring     []*queue // queues with ready messages, served in turn
	delayed  delayHeap
	idle     []*worker // waiting for a message; the last to wait is woken first
	waking   bool      // a worker was woken and has not come yet
	inFlight int
	messages int // in the window
	bytes    int // in the window
	stopped  bool

	room  chan struct{} // capacity 1: the window has shrunk
	alarm chan struct{} // capacity 1: something became due earlier
}

func newRouter(cfg Config, log *zap.Logger) *router {
	return &router{
		cfg:    cfg,
		log:    log,
		queues: map[string]*queue{},
		lanes:  map[laneKey]*lane{},
		room:   make(chan struct{}, 1),
		alarm:  make(chan struct{}, 1),
	}
}

// signal wakes whoever waits on c, or whoever will next.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// add takes messages in, in commit order.
func (r *router) add(now time.Time, batch []message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range batch {
		m := &batch[i]
		r.messages++
		r.bytes += m.row.Size()
		m.queue = r.queueOf(m.row)
		if m.row.OrderingKey == "" {
			r.release(now, m)
			continue
		}
		key := laneKey{m.row.Queue, m.row.OrderingKey}
		if l := r.lanes[key]; l != nil {
			m.lane = l
			l.waiting.push(m)
			continue
		}
		m.lane = &lane{key: key}
		r.lanes[key] = m.lane
		r.release(now, m)
	}
}

func (r *router) queueOf(row *outbox.Row) *queue {
	q := r.queues[row.Queue]
	if q == nil {
		// The name is copied: the row's text must not live as long as the queue.
		q = &queue{name: strings.Clone(row.Queue)}
		r.queues[q.name] = q
	}
	return q
}

// release lets a message that is first in its lane go as soon as it may.
func (r *router) release(now time.Time, m *message) {
	if m.row.DeliverAt.After(now) {
		r.delay(m, m.row.DeliverAt)
		return
	}
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
	m.due = until
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
	if r.stopped || !r.endpoint.permits(now) {
		return nil
	}
	for len(r.ring) > 0 {
		q := r.ring[0]
		r.ring = r.ring[1:]
		if q.inFlight >= r.cfg.MaxInFlightPerQueue || !q.gate.permits(now) {
			q.listed = false // comes back when a request ends or the gate is due
			continue
		}
		m := q.ready.pop()
		if q.ready.empty() {
			q.listed = false
		} else {
			r.ring = append(r.ring, q)
		}
		q.inFlight++
		r.inFlight++
		m.probesEndpoint = r.endpoint.enter()
		m.probesQueue = q.gate.enter()
		return m
	}
	return nil
}

// finish takes back a message that w has published, and returns the next one
// for w as take does. A nil failure means that the queue accepted it. The
// outcome is nil while the message has to go out again.
func (r *router) finish(now time.Time, w *worker, m *message, failure *PublishError) (*outcome, *message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.queue.inFlight--
	r.inFlight--
	if failure.sent() {
		m.attempts++
	}
	done := r.settle(now, m, failure)
	if done != nil {
		r.advance(now, m)
	}
	r.list(m.queue)
	next := r.pick(now)
	if next == nil {
		r.idle = append(r.idle, w)
	}
	return done, next
}

// settle decides what becomes of a message: an outcome, or another attempt.
func (r *router) settle(now time.Time, m *message, failure *PublishError) *outcome {
	if failure == nil {
		r.gotThrough(now, m)
		return &outcome{message: m, state: dispatched}
	}
	if failure.Class == Conflict {
		m.conflicts++
	}
	if failure.Class == UnknownOutcome {
		m.unknown = true
	}
	if !failure.Class.outage() {
		r.gotThrough(now, m) // the queue answered: it is there
		if failure.Class == Refused || m.conflicts >= r.cfg.ConflictAttempts {
			return &outcome{message: m, state: dead, failure: failure}
		}
		r.retry(now, m, failure)
		return nil
	}
	r.failed(now, m, failure)
	m.outage = true
	r.retry(now, m, failure)
	return nil
}

func (r *router) retry(now time.Time, m *message, failure *PublishError) {
	wait := backoff(m.attempts, r.cfg.RetryMin, r.cfg.RetryMax)
	r.delay(m, now.Add(max(wait, failure.RetryAfter)))
}

// gotThrough opens the gates before an endpoint and a queue that answered.
func (r *router) gotThrough(now time.Time, m *message) {
	if m.queue.gate.success(m.probesQueue) {
		r.log.Info("queue is back", zap.String(keyQueue, m.queue.name))
		r.resume(now, m.queue)
	}
	if r.endpoint.success(m.probesEndpoint) {
		r.log.Info("endpoint is back")
		r.resume(now, nil)
	}
}

// resume lets messages go that were delayed because of an outage, of one queue
// or of all: what kept them is over. Those whose own time has not come stay.
func (r *router) resume(now time.Time, q *queue) {
	for _, m := range r.delayed {
		if m.outage && (q == nil || m.queue == q) && !m.row.DeliverAt.After(now) {
			m.due = now
		}
	}
	heap.Init(&r.delayed)
	r.wakeDue(now)
	for _, q := range r.queues {
		r.list(q)
	}
	r.wakeOne()
}

// failed closes the gate that an outage-class failure calls for.
func (r *router) failed(now time.Time, m *message, failure *PublishError) {
	m.queue.gate.leave(m.probesQueue)
	r.endpoint.leave(m.probesEndpoint)
	if failure.Class == QueueClosed {
		// The endpoint answered; only this queue is closed.
		if r.endpoint.success(m.probesEndpoint) {
			r.log.Info("endpoint is back")
			r.resume(now, nil)
		}
		r.closeGate(now, &m.queue.gate, m.probesQueue, failure, zap.String(keyQueue, m.queue.name))
		return
	}
	r.endpoint.strikes++
	if failure.Class.guessed() && r.endpoint.strikes < r.cfg.BreakerFailures && !m.probesEndpoint {
		return
	}
	r.closeGate(now, &r.endpoint, m.probesEndpoint, failure)
}

// closeGate closes a gate, or keeps it closed after a failed probe. A failure of
// a request that left before the gate closed moves nothing but a pause that the
// queue asked for.
func (r *router) closeGate(now time.Time, g *gate, probe bool, failure *PublishError, where ...zap.Field) {
	if g.closed && !probe && failure.RetryAfter == 0 {
		return
	}
	if !g.closed || probe {
		g.failures++
	}
	wait := backoff(g.failures, r.cfg.ProbeMin, r.cfg.ProbeMax)
	if failure.RetryAfter > 0 {
		wait = max(pause(failure.RetryAfter), r.cfg.ProbeMin/2)
	}
	if g.close(now, failure.Class, wait) {
		r.log.Warn("sending paused", append(where,
			zap.Stringer(keyReason, failure.Class), zap.Int(keyStatus, failure.Status),
			zap.Duration("wait", wait), zap.Error(failure))...)
	}
	signal(r.alarm)
}

// advance lets the next message of a lane go after its head has its outcome.
func (r *router) advance(now time.Time, m *message) {
	l := m.lane
	switch {
	case l == nil:
	case l.waiting.empty():
		delete(r.lanes, l.key)
	default:
		r.release(now, l.waiting.pop())
	}
}

// tick lets go what has become due and returns when the next thing will.
func (r *router) tick(now time.Time) (next time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wakeDue(now)
	r.openDue(now)
	return r.nextDue(now)
}

func (r *router) wakeDue(now time.Time) {
	for len(r.delayed) > 0 && !r.delayed[0].due.After(now) {
		m := heap.Pop(&r.delayed).(*message)
		m.outage = false
		m.queue.ready.push(m)
		r.list(m.queue)
		r.wakeOne()
	}
}

// openDue brings a probe on its way for each gate whose time has come. Where
// every message of a closed gate is delayed, the one that is due first goes: a
// queue that is back must not wait for the longest backoff.
func (r *router) openDue(now time.Time) {
	if r.endpoint.closed && r.endpoint.permits(now) {
		if !r.anyReady() {
			r.hurry(nil)
		}
		for _, q := range r.queues {
			r.list(q)
		}
		r.wakeOne()
	}
	for _, q := range r.queues {
		if !q.gate.closed || !q.gate.permits(now) {
			continue
		}
		if q.ready.empty() {
			r.hurry(q)
		}
		r.list(q)
		r.wakeOne()
	}
}

func (r *router) anyReady() bool {
	for _, q := range r.queues {
		if !q.ready.empty() {
			return true
		}
	}
	return false
}

// hurry makes the message ready that is due first among those which wait for
// q, or for any queue.
func (r *router) hurry(q *queue) {
	var first *message
	for _, m := range r.delayed {
		if m.outage && (q == nil || m.queue == q) && (first == nil || m.due.Before(first.due)) {
			first = m
		}
	}
	if first == nil {
		return
	}
	heap.Remove(&r.delayed, first.heap)
	first.outage = false
	first.queue.ready.push(first)
	r.list(first.queue)
}

func (r *router) nextDue(now time.Time) (next time.Time, ok bool) {
	sooner := func(t time.Time) {
		if t.After(now) && (!ok || t.Before(next)) {
			next, ok = t, true
		}
	}
	if len(r.delayed) > 0 {
		sooner(r.delayed[0].due)
	}
	if r.endpoint.closed {
		sooner(r.endpoint.until)
	}
	for _, q := range r.queues {
		if q.gate.closed {
			sooner(q.gate.until)
		}
	}
	return next, ok
}

// full reports whether the window is full.
func (r *router) full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.messages >= r.cfg.WindowMessages || r.bytes >= r.cfg.WindowBytes
}

// hold counts a message in the window that does not pass through the lanes: only
// its outcome has to be written.
func (r *router) hold(m *message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages++
	r.bytes += m.row.Size()
}

// resolved gives the room of messages back whose outcome is durable.
func (r *router) resolved(messages, bytes int) {
	r.mu.Lock()
	r.messages -= messages
	r.bytes -= bytes
	r.mu.Unlock()
	signal(r.room)
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
