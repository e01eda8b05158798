package relay

import (
	"container/heap"
	"time"

	"go.uber.org/zap"
)

// What the router does when sending stops and when it works again.

// gotThrough opens the gates before an endpoint and a queue that answered.
func (r *router) gotThrough(now time.Time, m *message) {
	m.queue.lastSuccess = now
	r.successes++
	if m.queue.gate.success(m.probesQueue) {
		r.log.Info("queue is back", zap.String(keyQueue, m.queue.name))
		m.queue.ramp.start(m.queue.inFlight)
		r.resume(now, m.queue)
	}
	r.openEndpoint(now, m)
	m.queue.ramp.success(r.limit(m.queue))
	r.ramp.success(r.cfg.MaxInFlight)
	if len(r.ring) > 0 {
		r.wakeOne() // the ramps may let more go
	}
}

// openEndpoint opens the gate before an endpoint that answered.
func (r *router) openEndpoint(now time.Time, m *message) {
	if r.endpoint.success(m.probesEndpoint) {
		r.log.Info("endpoint is back")
		r.ramp.start(r.inFlight)
		r.resume(now, nil)
	}
}

// resume lets messages go that were delayed because of an outage, of one queue
// or of all: what kept them is over.
func (r *router) resume(now time.Time, q *queue) {
	for _, m := range r.delayed {
		if m.outage && (q == nil || m.queue == q) {
			m.due = now
		}
	}
	heap.Init(&r.delayed)
	r.wakeDue(now)
	for _, q := range r.queues {
		r.list(q)
	}
	r.wakeOne()
	signal(r.load)
}

// failed closes the gate that an outage-class failure calls for.
func (r *router) failed(now time.Time, m *message, failure *PublishError) {
	m.queue.gate.leave(m.probesQueue)
	r.endpoint.leave(m.probesEndpoint)
	if failure.Class == QueueClosed {
		// The endpoint answered; only this queue is closed.
		r.openEndpoint(now, m)
		r.closeGate(now, &m.queue.gate, m.probesQueue, failure, zap.String(keyQueue, m.queue.name))
		return
	}
	if !failure.Class.guessed() {
		r.closeGate(now, &r.endpoint, m.probesEndpoint, failure)
		return
	}
	g := &m.queue.gate
	if g.strikes++; g.strikes == 1 {
		g.struckAt = r.successes
	}
	switch {
	case g.strikes < r.cfg.BreakerFailures && !m.probesQueue && !m.probesEndpoint:
	case r.successes > g.struckAt || r.othersGetThrough(now, m.queue):
		r.closeGate(now, g, m.probesQueue, failure, zap.String(keyQueue, m.queue.name))
	default:
		r.closeGate(now, &r.endpoint, m.probesEndpoint, failure)
	}
}

// othersGetThrough reports whether another queue is well: then it is not the
// endpoint that fails.
func (r *router) othersGetThrough(now time.Time, than *queue) bool {
	for _, q := range r.queues {
		if q != than && q.gate.strikes == 0 && now.Sub(q.lastSuccess) < r.cfg.ProbeMin {
			return true
		}
	}
	return false
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
	g.failure = failure
	wait := backoff(g.failures, r.cfg.ProbeMin, r.cfg.ProbeMax)
	if failure.RetryAfter > 0 {
		wait = max(pause(failure.RetryAfter), r.cfg.ProbeMin/2)
	}
	if g.close(now, failure.Class, wait) {
		r.log.Warn("sending paused", append(where,
			zap.Stringer(keyReason, failure.Class), zap.Int(keyStatus, failure.Status),
			zap.Duration("wait", wait), zap.String("error", failure.beside(failure.Class.String())))...)
	}
	signal(r.alarm)
}

// tick does what has become due and returns when the next thing will.
func (r *router) tick(now time.Time) (next time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wakeDue(now)
	r.holdDue(now)
	r.overflowTails(now)
	r.openDue(now)
	r.paceDue(now)
	return r.nextDue(now)
}

func (r *router) wakeDue(now time.Time) {
	for len(r.delayed) > 0 && !r.delayed[0].due.After(now) {
		m := heap.Pop(&r.delayed).(*message)
		m.outage = false
		r.ready(now, m)
	}
}

func (r *router) undelay(m *message) { heap.Remove(&r.delayed, m.heap) }

// holdDue sends queues into the table to which nothing can be sent, or not as
// fast as messages come: the slot must not wait for them.
func (r *router) holdDue(now time.Time) {
	for _, q := range r.queues {
		shut := r.shut(now, q)
		switch {
		case q.hold != nil && shut && q.hold.state != held && !r.sendable(now, q) && !r.readyToProbe(q):
			r.reholdQueue(q)
		case q.hold == nil && shut && q.inMemory > q.inFlight:
			r.holdQueue(q, "sending is paused")
		case q.hold == nil && !q.ready.empty() && now.Sub(q.ready.head.since) >= r.cfg.OverflowAfter:
			r.holdQueue(q, "slower than its messages come")
		}
	}
}

// overflowTails sends into the table what has waited in memory for too long for
// the end of a hold. In a lane that has live messages in memory these come first:
// there it overflows with them.
func (r *router) overflowTails(now time.Time) {
	for h := range r.draining {
		switch {
		case !h.tailSince(now, r.cfg.OverflowAfter), h.lane != nil && h.lane.busy():
		case h.lane == nil:
			r.reholdQueue(h.queue)
		default:
			r.rehold(h)
			r.parked[h] = true // it drains again at once
			signal(r.load)
		}
	}
}

// tailSince reports whether a message has waited behind the hold for so long.
func (h *hold) tailSince(now time.Time, long time.Duration) bool {
	return !h.tail.empty() && now.Sub(h.tail.head.taken) >= long
}

// readyToProbe reports whether a held queue has no more in memory than it needs
// to find out whether the queue is back.
func (r *router) readyToProbe(q *queue) bool {
	return loadable(q) && q.hold.state == draining && q.fetched.count() <= r.chunks.probe
}

// openDue brings a probe on its way for each gate whose time has come. Where
// every message of a closed gate is delayed, the one that is due first goes: a
// queue that is back must not wait for the longest backoff.
func (r *router) openDue(now time.Time) {
	if r.endpoint.closed && r.endpoint.permits(now) {
		if !r.anyReady() {
			r.hurry(now, nil)
		}
		for _, q := range r.queues {
			r.list(q)
		}
		r.wakeOne()
		signal(r.load)
	}
	for _, q := range r.queues {
		if !q.gate.closed || !q.gate.permits(now) {
			continue
		}
		if q.ready.empty() {
			r.hurry(now, q)
		}
		r.list(q)
		r.wakeOne()
		signal(r.load)
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
func (r *router) hurry(now time.Time, q *queue) {
	var first *message
	for _, m := range r.delayed {
		if m.outage && (q == nil || m.queue == q) && (first == nil || m.due.Before(first.due)) {
			first = m
		}
	}
	if first == nil {
		return
	}
	r.undelay(first)
	first.outage = false
	r.ready(now, first)
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
	for h := range r.draining {
		if !h.tail.empty() {
			sooner(h.tail.head.taken.Add(r.cfg.OverflowAfter))
		}
	}
	r.sooner(&r.endpoint, sooner)
	for _, q := range r.queues {
		if !q.pace.next.IsZero() {
			sooner(q.pace.next)
		}
		r.sooner(&q.gate, sooner)
		if q.hold == nil && !q.ready.empty() {
			sooner(q.ready.head.since.Add(r.cfg.OverflowAfter))
		}
	}
	return next, ok
}

func (r *router) sooner(g *gate, sooner func(time.Time)) {
	if g.closed {
		sooner(g.until)
		sooner(g.since.Add(r.cfg.DeferAfter))
	}
}
