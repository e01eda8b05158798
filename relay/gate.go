package relay

import "time"

// A gate stands before an endpoint or a queue. It is open while requests get
// through; it closes when they do not, and lets one probe pass at a time until
// one of them gets through.
//
// The zero gate is open. It belongs to the router and needs no lock.
type gate struct {
	closed   bool
	probing  bool          // a probe is under way
	until    time.Time     // no probe before this
	strikes  int           // failures in a row from which we guess that the queue is down
	struckAt uint64        // requests to any queue that had got through at the first of them
	failures int           // closings and failed probes since it was last open
	reason   Class         // why it is closed
	since    time.Time     // when it closed
	failure  *PublishError // the last one; nil while it is open
}

// permits reports whether a request may pass now.
func (g *gate) permits(now time.Time) bool {
	return !g.closed || (!g.probing && !now.Before(g.until))
}

// enter notes that a request passes and reports whether it is a probe.
func (g *gate) enter() (probe bool) {
	if g.closed {
		g.probing = true
	}
	return g.closed
}

// success notes that a request got through and reports whether that opened the
// gate. A straggler from before a pause that the queue asked for says nothing
// about the pause: only a probe ends that.
func (g *gate) success(probe bool) (opened bool) {
	if g.closed && !probe && !g.reason.guessed() {
		return false
	}
	opened = g.closed
	*g = gate{}
	return opened
}

// close shuts the gate for a while, after a failure that calls for it.
func (g *gate) close(now time.Time, reason Class, wait time.Duration) (closed bool) {
	closed = !g.closed
	if closed {
		g.since = now
	}
	g.closed, g.reason = true, reason
	if until := now.Add(wait); until.After(g.until) {
		g.until = until
	}
	return closed
}

// leave notes that a probe ended without getting through.
func (g *gate) leave(probe bool) {
	if probe {
		g.probing = false
	}
}

// guessed reports whether a gate closed for this reason was closed on our own
// judgement (a row of failures) rather than on the queue's word.
func (c Class) guessed() bool { return c == UnknownOutcome || c == Transient }

// ramp bounds the requests in flight after a gate has opened: two more than
// there are at first, and one more with each that gets through. What has just come back is not run over by
// everything that waited. The zero ramp bounds nothing. It belongs to the router
// and needs no lock.
type ramp struct{ limit int }

func (r *ramp) permits(inFlight int) bool { return r.limit == 0 || inFlight < r.limit }

// start begins after a request has got through, with those still in flight.
func (r *ramp) start(inFlight int) { r.limit = inFlight + 1 }

// success notes that a request got through; at most requests the ramp ends.
func (r *ramp) success(most int) {
	if r.limit == 0 {
		return
	}
	if r.limit++; r.limit >= most {
		r.limit = 0
	}
}

// shut reports whether the gate has been closed for at least as long as after,
// or will be.
func (g *gate) shut(now time.Time, after time.Duration) bool {
	return g.closed && (now.Sub(g.since) >= after || g.until.Sub(g.since) >= after)
}
