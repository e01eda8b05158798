package relay

import "time"

// What becomes of a message that a worker brings back.

// settle decides what becomes of a message that came back: an outcome, another
// attempt from memory, or a later one from the table.
func (r *router) settle(now time.Time, m *message, receipt Receipt, failure *PublishError) {
	if failure == nil {
		r.gotThrough(now, m)
		r.conclude(now, m, &outcome{message: m, state: dispatched, receipt: receipt, duplicate: r.maybeTwice(now, m)})
		return
	}
	m.failure = failure
	if m.failedAt.IsZero() {
		m.failedAt = now
	}
	if failure.Class == UnknownOutcome && m.unknownAt.IsZero() {
		m.unknownAt = now
	}
	// The queue answered, or others got through since the last attempt: then it
	// is this message.
	m.blamed = failure.Class == Conflict || m.queue.lastSuccess.After(m.watched)
	if m.blamed {
		m.charged++
	}
	m.watched = now
	switch {
	case failure.Class.outage():
		r.failed(now, m, failure)
		m.outage = true
	case failure.sent():
		r.gotThrough(now, m) // the queue answered: it is there
	default:
		m.queue.gate.leave(m.probesQueue)
		r.endpoint.leave(m.probesEndpoint)
	}
	switch {
	case failure.Class == Refused, failure.Class == Conflict && m.charged >= r.cfg.ConflictAttempts:
		r.bury(now, m, failure, failure.reason())
	case m.charged >= r.maxAttempts(m.queue):
		r.bury(now, m, failure, reasonExhausted)
	case !m.cached && m.queue.hold != nil || m.queue.reordering || r.shut(now, m.queue):
		r.putOff(now, m, failure)
	default:
		due := now.Add(max(backoff(m.attempts, r.cfg.RetryMin, r.cfg.RetryMax), failure.RetryAfter))
		if due.Sub(m.failedAt) >= r.cfg.DeferAfter {
			r.putOff(now, m, failure) // the slot waits for what is in memory
			return
		}
		r.delay(m, due)
	}
}

func (r *router) maxAttempts(q *queue) int {
	if q.settings.MaxAttempts > 0 {
		return q.settings.MaxAttempts
	}
	return r.cfg.MaxAttempts
}

// maybeTwice reports whether an earlier attempt may have been accepted so long
// ago that the queue has forgotten its key.
func (r *router) maybeTwice(now time.Time, m *message) bool {
	window := r.cfg.KeyWindow
	if m.queue.oneLane {
		window = min(window, r.cfg.FIFOWindow)
	}
	return !m.unknownAt.IsZero() && now.Sub(m.unknownAt) > window
}

// bury makes a dead letter. Its lane goes on, or waits for a person where an
// operator wants that.
func (r *router) bury(now time.Time, m *message, failure *PublishError, reason string) {
	o := &outcome{message: m, state: dead, failure: failure, reason: reason}
	if m.lane == nil || !m.queue.settings.HoldOnDeadLetter {
		r.conclude(now, m, o)
		return
	}
	o.blocks = true
	m.queue.inMemory--
	r.holdLane(m, func(h *hold) {
		m.goingBack = m.cached
		o.hold = h
		h.pending++ // also for a row of the table: a scheduled one is not of the lane yet
		r.emit(o)
	})
}

// conclude records the outcome of a message and lets its lane go on.
func (r *router) conclude(now time.Time, m *message, o *outcome) {
	r.emit(o)
	m.queue.inMemory--
	r.advance(now, m)
	if m.cached || m.lane != nil && m.lane.hold != nil {
		signal(r.load)
	}
}

// advance lets the next message of a lane go after its head has left.
func (r *router) advance(now time.Time, m *message) {
	l := m.lane
	if l == nil {
		return
	}
	l.head = nil
	if q := m.queue; !m.cached && q.hold != nil && l.hold == nil {
		// A hold began while the head was in flight: the rest follows.
		switch q.hold.state {
		case held:
			r.deferWaiting(l, q.hold)
		case draining:
			r.deferLiveWaiting(l, q.hold)
		case closing:
		}
	}
	if next := l.waiting.head; next != nil && !next.cached && now.Sub(next.taken) >= r.cfg.OverflowAfter {
		r.overflow(l)
		return
	}
	if !l.waiting.empty() {
		next := l.waiting.pop()
		l.head = next
		r.ready(now, next)
		return
	}
	if l.hold == nil {
		delete(r.lanes, l.key)
	}
}
