package relay

import (
	"cmp"
	"math"
	"slices"
	"time"

	"go.uber.org/zap"
)

// hold keeps messages of a queue, or of one lane, in the table deferred: while
// the table has some of them, those that come later must queue up behind them
// there. It belongs to the router.
//
//	held ---> draining ---> closing ---> gone
//	  ^          |             |
//	  +----------+-------------+   when sending stops again
//
// A held scope waits. A draining one has the next rows in memory, as a cache.
// When a chunk comes back short, the end of the table is near: the scope is
// closing, and messages that come now wait in memory, in tail. Once no deferral
// is on its way into the table any more, one more chunk that comes back short
// proves that everything is in memory, in order: the hold is gone, and tail
// joins the lanes. In this one place, under the router's lock, nothing can slip
// in between.
//
// While a queue drains, its lanes that wait on their own drain beside it when their
// time has come. Such a lane does not close: when the table has no more of it, it is a
// part of its queue again.
type hold struct {
	queue      *queue
	lane       *lane // nil for the whole queue
	state      holdState
	loading    bool
	dry        bool  // a chunk for probes came back short, and nothing came since
	stuck      bool  // the next row of a lane waits for its time: it is read again when what is cached has left
	generation int   // raised when the scope is held again: a chunk asked for before is stale
	cursor     int64 // rows up to this position are in memory, or not for this hold
	cached     int   // rows of it in memory
	room       int   // rows that may be in memory
	speed      speedometer
	pending    int   // deferrals on their way into the table
	tail       list  // live messages, while closing
	into       *hold // what this hold became a part of

	drains time.Time // since when it drains
}

// beforeAll is lower than every position: those of redriven messages are
// negative.
const beforeAll = math.MinInt64

// newHold returns a hold of a lane, or with a nil lane, of a whole queue.
func newHold(q *queue, l *lane) *hold {
	return &hold{queue: q, lane: l, cursor: beforeAll}
}

type holdState uint8

const (
	held holdState = iota
	draining
	closing
)

// Reasons for being in the table, beside the names of classes.
const (
	reasonHeld      = "held"      // behind others
	reasonScheduled = "scheduled" // deliver_at
	reasonExhausted = "attempts_exhausted"

	// reasonDeadLetter marks the row of a dead letter whose lane waits for a
	// person. It has no not_before; when it gets one, it no longer holds the lane.
	reasonDeadLetter = "dead_letter"
)

// holdBack puts a live message behind a hold: into the table, or, if that is
// about to run empty, into memory.
func (r *router) holdBack(h *hold, m *message) {
	if h.state == closing {
		m.place, m.hold = placeTail, h
		h.tail.push(m)
		return
	}
	r.deferLive(m, h, reasonHeld, time.Time{}, nil)
}

// deferLive sends a live message into the table. It stays in the window until
// that is durable.
func (r *router) deferLive(m *message, h *hold, reason string, notBefore time.Time, failure *PublishError) {
	m.place = placeNone
	m.queue.inMemory--
	if h != nil {
		h.pending++
	}
	r.emit(&outcome{message: m, state: deferred, hold: h, reason: reason, notBefore: notBefore, failure: failure})
}

// drop lets go of a cached message: its row stays in the table. What failed
// while it was here goes into the row; the message is due as it was.
func (r *router) drop(m *message) {
	r.detach(m)
	if m.failure != nil {
		r.deferOne(m, nil, m.failedAt, m.failure)
		return
	}
	m.queue.inMemory--
	r.uncache(m)
}

func (r *router) uncache(m *message) {
	delete(r.cache, m.row.ID)
	r.cacheBytes -= m.row.Size()
	m.queue.fetched.remove(m.taken)
	if m.hold != nil {
		m.hold.cached--
		m.hold.speed.count()
		m.hold = nil
	}
}

// detach takes a message out of the list or heap that it is in.
func (r *router) detach(m *message) {
	switch m.place {
	case placeReady:
		m.queue.ready.remove(m)
	case placeWaiting:
		m.lane.waiting.remove(m)
	case placeDelayed:
		r.undelay(m)
	case placeTail:
		m.hold.tail.remove(m)
		m.hold = nil
	}
	if l := m.lane; l != nil && l.head == m {
		l.head = nil
	}
	m.place = placeNone
}

// shut reports whether sending to a queue has been impossible for so long that
// its messages had better wait in the table.
func (r *router) shut(now time.Time, q *queue) bool {
	after := r.cfg.DeferAfter
	return q.settings.Paused || r.endpoint.shut(now, after) || q.gate.shut(now, after)
}

// putOff sends a message that came back into the table, to be tried later, and
// with it what waits behind it in its lane.
func (r *router) putOff(now time.Time, m *message, failure *PublishError) {
	most := r.cfg.DeferMax
	if failure.Class.outage() && !m.blamed {
		most = min(most, r.cfg.ProbeMax) // nobody gets through to the queue, which may be back soon
	}
	notBefore := now.Add(max(backoff(m.attempts, r.cfg.DeferMin, most), failure.RetryAfter))
	if m.lane == nil {
		r.deferOne(m, nil, notBefore, failure)
		return
	}
	r.holdLane(m, func(h *hold) { r.deferOne(m, h, notBefore, failure) })
}

// holdLane sends a lane into the table: its head first, the way put does it, and
// then what waits behind.
func (r *router) holdLane(head *message, put func(*hold)) {
	l := head.lane
	l.head = nil
	if l.hold == nil {
		l.hold = newHold(head.queue, l)
	}
	put(l.hold)
	r.deferWaiting(l, l.hold)
	r.rehold(l.hold)
	r.joinLane(l)
	signal(r.load)
}

// overflow sends what waits in a lane that is slower than its messages come into
// the table. They follow from there at once.
func (r *router) overflow(l *lane) {
	q := l.waiting.head.queue
	r.log.Debug("lane overflows", zap.String(keyQueue, q.name), zap.Int(keyMessages, l.waiting.n))
	if l.hold == nil {
		l.hold = newHold(q, l)
	}
	r.deferWaiting(l, l.hold)
	r.rehold(l.hold)
	r.joinLane(l)
	r.parked[l.hold] = true // it drains as soon as its queue is live
	signal(r.load)
}

// joinLane moves to the hold of a lane what waits for the end of its queue's
// hold: from now on it waits for the lane.
func (r *router) joinLane(l *lane) {
	h := l.hold.queue.hold
	if h == nil {
		return
	}
	for m, next := h.tail.head, (*message)(nil); m != nil; m = next {
		next = m.next
		if m.queue.laneKey(m.row.OrderingKey) == l.key {
			r.detach(m)
			r.holdBack(l.hold, m)
		}
	}
}

// deferOne puts one message off: a live one gets a row, the row of a cached one
// changes.
func (r *router) deferOne(m *message, h *hold, notBefore time.Time, failure *PublishError) {
	if !m.cached {
		r.deferLive(m, h, failure.Class.String(), notBefore, failure)
		return
	}
	m.queue.inMemory--
	m.goingBack = true
	r.emit(&outcome{message: m, state: postponed, reason: failure.Class.String(), notBefore: notBefore, failure: failure})
}

// deferWaiting sends what waits in a lane into the table, in order.
func (r *router) deferWaiting(l *lane, h *hold) {
	for !l.waiting.empty() {
		m := l.waiting.head
		if m.cached {
			r.drop(m)
			continue
		}
		r.detach(m)
		r.deferLive(m, h, reasonHeld, time.Time{}, nil)
	}
}

// deferLiveWaiting is the same for the live ones of a lane whose queue drains. Rows
// that the queue has read stay in memory: it would not read them again.
func (r *router) deferLiveWaiting(l *lane, h *hold) {
	for m, next := l.waiting.head, (*message)(nil); m != nil; m = next {
		next = m.next
		if !m.cached {
			r.detach(m)
			r.deferLive(m, h, reasonHeld, time.Time{}, nil)
		}
	}
}

// holdQueue sends everything of a queue into the table, in commit order, except
// requests in flight and what waits behind a live one: that follows when it
// returns.
func (r *router) holdQueue(q *queue, why string) {
	q.hold = newHold(q, nil)
	r.log.Info("queue held", zap.String(keyQueue, q.name), zap.String(keyReason, why), zap.Int(keyMessages, q.inMemory))
	r.clearQueue(q)
	signal(r.load)
}

// clearQueue stops the draining of a queue's lanes and sends what is idle into
// the table.
func (r *router) clearQueue(q *queue) {
	r.parkLanes(q)
	for _, m := range r.idleMessages(q) {
		switch {
		case m.cached:
			r.drop(m)
		case m.failure != nil:
			r.detach(m)
			r.deferLive(m, q.hold, m.failure.Class.String(), time.Time{}, m.failure)
		default:
			r.detach(m)
			r.deferLive(m, q.hold, reasonHeld, time.Time{}, nil)
		}
	}
	r.forgetLanes(q)
}

// idleMessages are the messages of a queue that are in nobody's hands and not
// behind a live one that is, in commit order.
func (r *router) idleMessages(q *queue) (idle []*message) {
	for m := q.ready.head; m != nil; m = m.next {
		idle = append(idle, m)
	}
	for _, m := range r.delayed {
		if m.queue == q {
			idle = append(idle, m)
		}
	}
	for key, l := range r.lanes {
		if key.queue != q.name || l.head != nil && l.head.place == placeFlying && !l.head.cached {
			continue
		}
		for m := l.waiting.head; m != nil; m = m.next {
			idle = append(idle, m)
		}
	}
	slices.SortFunc(idle, func(a, b *message) int { return cmp.Compare(a.number, b.number) })
	return idle
}

// forgetLanes removes the lanes of a queue that have nothing in memory.
func (r *router) forgetLanes(q *queue) {
	for key, l := range r.lanes {
		if key.queue == q.name && l.idle() {
			delete(r.lanes, key)
		}
	}
}

// reholdQueue stops the draining of a queue and of its lanes.
func (r *router) reholdQueue(q *queue) {
	r.log.Info("queue held again", zap.String(keyQueue, q.name))
	r.rehold(q.hold)
	r.clearQueue(q)
}

// parkLanes stops the draining of lanes until their queue is live again.
func (r *router) parkLanes(q *queue) {
	for h := range r.draining {
		switch {
		case h.queue != q || h.lane == nil:
		case h.lane.busy():
			r.unhold(h)
		default:
			r.rehold(h)
			r.parked[h] = true
		}
	}
}

// unhold makes a lane a part of its queue again, which is held: what is on its way
// into the table is found by the queue. So it is with a lane that has all its rows in
// memory while its queue drains, since what comes into the table now is behind all
// that the queue has read; and with one that waits for a row which somebody put into
// the table when its queue is held again: the row will be found another time.
func (r *router) unhold(h *hold) {
	delete(r.draining, h)
	h.into = h.queue.hold
	h.into.pending += h.pending
	l := h.lane
	l.hold = nil
	for !h.tail.empty() {
		m := h.tail.head
		r.detach(m)
		r.wait(l, m)
	}
	if l.idle() {
		delete(r.lanes, l.key)
	}
}

// rehold stops the draining of a scope: what is cached and in nobody's hands is
// dropped, what is live goes into the table behind the rest.
func (r *router) rehold(h *hold) {
	h.state, h.cursor, h.loading, h.dry, h.stuck = held, beforeAll, false, false, false
	h.generation++
	delete(r.draining, h)
	delete(r.parked, h)
	if h.cached > 0 {
		for _, m := range r.cache {
			if m.hold == h && m.place != placeFlying && m.place != placeNone {
				r.drop(m)
			}
		}
	}
	for !h.tail.empty() {
		m := h.tail.head
		r.detach(m)
		r.deferLive(m, h, reasonHeld, time.Time{}, nil)
	}
}

// end removes a hold whose last rows are in memory.
func (r *router) end(now time.Time, h *hold) {
	delete(r.draining, h)
	delete(r.parked, h)
	if h.lane != nil {
		h.lane.hold = nil
	} else {
		h.queue.hold = nil
		r.log.Info("queue is live again", zap.String(keyQueue, h.queue.name))
	}
	for !h.tail.empty() {
		m := h.tail.head
		r.detach(m)
		r.enqueue(now, m)
	}
	if l := h.lane; l != nil && l.idle() {
		delete(r.lanes, l.key)
	}
}
