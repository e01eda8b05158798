package admin

import (
	"fmt"
	"slices"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/plural"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/internal/vital"
	"github.com/outbox-relay/outbox-relay/relay"
)

const (
	// patience is how long trouble may last that usually passes by itself: a
	// connection that breaks, a pause that the queue asks for.
	patience = 10 * time.Second
	// slowCall is how long a statement may take that messages wait for.
	slowCall = 30 * time.Second
	// recent is how long a warning stays about something that is over.
	recent = time.Hour
	// mostQueues bounds the findings about queues: a person reads them.
	mostQueues = 20
)

// Ready answers whether messages get through, or would if there were some. The report
// is what the database has said last, nil if nobody knows: it adds warnings, and
// changes no answer.
func Ready(cfg *Config, state *relay.State, report *status.Report) Verdict {
	e := newExaminer(cfg, state)
	e.report = report
	e.examine()
	return e.verdict()
}

// examine collects what a state says.
func (e *examiner) examine() {
	state := e.state
	e.stuck()
	switch state.Phase {
	case relay.Active, relay.Careful:
		e.active()
	case relay.Standby:
		e.standby()
	case relay.Holding:
		e.fail("holding", &state.Since, state.Hint, "%s", state.Reason)
	case relay.Stopping:
		e.fail("stopping", &state.Since, "", "the relay was asked to stop")
	default:
		e.notStreaming()
	}
	e.lately()
}

// notStreaming is about a relay that has no stream, and is to get one.
func (e *examiner) notStreaming() {
	s := e.state
	reason := s.Reason
	switch {
	case reason != "":
	case s.Step == relay.StepPreparing:
		reason = "it has the stream, and looks through the tables"
	default:
		reason = "it is on its way to the stream"
	}
	e.fail(string(s.Phase), &s.Since, s.Hint, "%s", reason)
}

// standby is about a relay that waits for another. It is ready if it could take
// over, and if the other one is there: nobody else would notice that the slot is
// held for a relay that is gone.
func (e *examiner) standby() {
	source := &e.state.Source
	if trouble := source.Trouble; trouble != nil {
		e.fail("source", &trouble.Since, trouble.Hint, "cannot take over: %s", trouble.Text)
	}
	if e.age(source.HolderHeard) >= e.cfg.HolderPatience && e.cfg.HolderPatience > 0 {
		e.fail("holder_silent", source.HolderHeard, endSession(source),
			"the slot is held by %s, from whom the server has heard nothing for %s", source.SlotHolder, e.ago(source.HolderHeard))
	}
	e.holderWaits()
}

// holderWaits is about a holder that only makes the slot, and waits: nothing is sent
// anywhere, and this relay could do no better.
func (e *examiner) holderWaits() {
	r := e.report
	if r == nil || r.Slot == nil || r.Slot.Making == nil {
		return
	}
	making := r.Slot.Making
	var since *time.Time
	if making.Since != nil {
		old := r.At.Sub(*making.Since).Seconds() // both are of the server's clock
		if since = e.seenSince(&old); e.age(since) < patience {
			return
		}
	}
	e.warn("holder_waits", since, making.Hint, "%s%s", making, e.asOf())
}

// active is about a relay that has the stream.
func (e *examiner) active() {
	e.stream()
	e.database()
	e.sending()
	if e.state.Phase == relay.Careful {
		e.warn("careful", &e.state.Since, "see \"The relay keeps crashing\" in docs/operations.md",
			"the relay has died again and again: one request goes out at a time")
	}
}

// stream is about what comes in.
func (e *examiner) stream() {
	source := &e.state.Source
	switch {
	case source.Doing != vital.Streaming:
		e.fail("source", &source.Since, "", "the stream is %s", source.Doing)
	case e.age(source.LastWord) >= e.cfg.TrustWindow:
		e.fail("server_silent", source.LastWord, "",
			"Postgres has not confirmed for %s that the slot is ours: nothing is sent", e.ago(source.LastWord))
	}
	if trouble := source.Trouble; trouble != nil {
		e.fail("source", &trouble.Since, trouble.Hint, "%s", trouble.Text)
	}
	if source.Doubts != "" {
		e.warn("publication", nil, "outbox-relay doctor prints what mends it", "%s", source.Doubts)
	}
}

// database is about what is written and read beside the stream.
func (e *examiner) database() {
	s := e.state
	if trouble := s.Writer.Trouble; trouble != nil && e.age(&trouble.Since) >= patience {
		e.fail("writer", &trouble.Since, trouble.Hint, "outcomes cannot be written, so nothing new is sent: %s", trouble.Text)
	}
	for _, c := range s.Database {
		if c.Name != "sweeping" && e.age(c.Busy) >= slowCall { // the sweep may read a large table
			e.fail("database", c.Busy, "", "a statement on the connection for %s has not returned for %s", c.Name, e.ago(c.Busy))
		}
	}
	for i := range s.Loops {
		if loop := &s.Loops[i]; loop.Trouble != nil {
			e.loop(loop)
		}
	}
}

// loop is about a loop that fails. The sweep comes round seldom: one failure of it
// says little.
func (e *examiner) loop(loop *relay.LoopState) {
	trouble := loop.Trouble
	lasts := e.age(&trouble.Since) >= patience
	switch loop.Name {
	case "writer": // has been dealt with
	case "intake", "loader", "settings":
		if lasts {
			e.fail("database", &trouble.Since, trouble.Hint, "the loop %s fails: %s", loop.Name, trouble.Text)
		}
	case "sweep":
		if again := loop.Turned != nil && loop.Turned.Sub(trouble.Since) >= time.Second; again {
			e.fail("sweep", &trouble.Since, trouble.Hint, "messages that the stream does not show cannot be looked for: %s", trouble.Text)
			return
		}
		fallthrough
	default:
		e.warn(loop.Name, &trouble.Since, trouble.Hint, "the loop %s fails: %s", loop.Name, trouble.Text)
	}
}

// sending is about what goes out.
func (e *examiner) sending() {
	router := &e.state.Router
	if e.age(&router.At) >= patience && !router.At.IsZero() {
		e.fail("router", &router.At, "", "the router has answered nobody for %s", e.ago(&router.At))
	}
	e.gate("endpoint", "the endpoint", &router.Endpoint, false)
	reasons, warnings := len(e.Reasons), len(e.Warnings)
	for i := range router.Queues {
		e.queue(&router.Queues[i])
	}
	e.Reasons = shorten(e.Reasons, reasons+mostQueues)
	e.Warnings = shorten(e.Warnings, warnings+mostQueues)
}

// gate is about a gate that is closed. A pause that the queue asks for, and one
// after failures, may be over in a moment.
func (e *examiner) gate(code, what string, g *relay.GateState, idle bool) {
	passing := []string{relay.RateLimited.String(), relay.Transient.String(), relay.UnknownOutcome.String()}
	switch {
	case !g.Closed:
	case idle:
		e.warn(code, g.Since, gateHint(g), "%s is closed, and nothing waits for it: %s", what, g.Why())
	case slices.Contains(passing, g.Class) && e.age(g.Since) < patience:
		e.warn(code, g.Since, "", "%s is closed for the moment: %s", what, g.Why())
	default:
		e.fail(code, g.Since, gateHint(g), "%s is closed, one request at a time tries whether it is back: %s", what, g.Why())
	}
}

// gateHint is what a person does about a closed gate.
func gateHint(g *relay.GateState) string {
	switch g.Class {
	case relay.EndpointClosed.String():
		return "put a key that the queue takes into the file of INFRAI_API_KEY_FILE, which is read again by itself, or see to the account's credit; " +
			"nothing is lost, and all goes out in order afterwards"
	case relay.QueueClosed.String():
		return "make the queue: outbox-relay queues provision; or did the application mistype its name?"
	}
	return "nothing to do here: the messages wait in the table, and go out in order when it is back"
}

// queue is about one queue.
func (e *examiner) queue(q *relay.QueueState) {
	waiting := q.InMemory > 0 || q.Hold != "" || q.HeldLanes > 0 || q.DrainingLanes > 0
	e.gate("queue", "queue "+q.Name, &q.Gate, !waiting)
	if e.age(q.Oldest) >= e.cfg.MaxAge {
		e.fail("oldest", q.Oldest, "", "queue %s: a message was read %s ago and has no outcome", q.Name, e.ago(q.Oldest))
	}
	if since := e.stalled(q); since != nil {
		e.fail("stalled", since, "", "queue %s: deferred messages may go out, and none of them has for %s", q.Name, e.ago(since))
	}
	follows := q.Gate.Closed || e.state.Router.Endpoint.Closed // what is told of these says enough
	switch {
	case q.Paused:
		e.warn("paused", q.At, "outbox-relay queues resume "+q.Name, "queue %s is paused %s; its messages wait", q.Name, q.Told(clock))
	case !follows && (q.Hold != "" || rateBound(q)):
		e.backlog(q)
	}
	if q.HeldLanes > 0 && !follows {
		e.held(q)
	}
	if !follows && q.Hold == "" && hot(q, e.state.At) {
		e.warn("hot_key", q.DrainingSince, "outbox-relay deferred keys --queue "+q.Name,
			"queue %s: %s a backlog of %s own, which has gone out one message after the other for %s; other keys pass it",
			q.Name, plural.Of(q.DrainingLanes, "ordering key has", "ordering keys have"), plural.Agree(q.DrainingLanes, "its", "their"), e.ago(q.DrainingSince))
	}
}

// hot reports whether ordering keys have been on their way out of the table for so
// long that it is not a moment's crowd.
func hot(q *relay.QueueState, now time.Time) bool {
	return q.DrainingSince != nil && now.Sub(*q.DrainingSince) >= patience
}

// rateBound reports whether a queue has much more in memory than its rate lets go.
func rateBound(q *relay.QueueState) bool {
	return q.RatePerSecond > 0 && float64(q.InMemory) > patience.Seconds()*q.RatePerSecond
}

// backlog is about a queue that takes less than comes, or is catching up.
func (e *examiner) backlog(q *relay.QueueState) {
	text := "queue " + q.Name + ": messages wait"
	if q.Hold != "" {
		text += " in the table, new ones behind them (" + q.Hold + ")"
	}
	switch {
	case q.RatePerSecond > 0:
		e.warn("backlog", nil, fmt.Sprintf("if they are to go faster: outbox-relay queues set %s rate_per_second=N", q.Name),
			"%s, and rate_per_second lets %g a second go", text, q.RatePerSecond)
	case q.InFlight > 0 && q.InFlight >= q.InFlightLimit:
		e.warn("backlog", nil, fmt.Sprintf("the queue is slow, or few may be in flight: outbox-relay queues set %s max_in_flight=N", q.Name),
			"%s, and as many requests are in flight as may be, %d", text, q.InFlightLimit)
	default:
		e.warn("backlog", nil, "", "%s", text)
	}
}

// held is about lanes that wait on their own.
func (e *examiner) held(q *relay.QueueState) {
	if dead := deadHeads(e.report, q); dead > 0 {
		e.warn("held", nil, "outbox-relay dead-letters list --queue "+q.Name,
			"queue %s: %s, %d of them behind a dead letter until a person has decided about it", q.Name, keysWait(q), dead)
		return
	}
	e.warn("held", nil, "outbox-relay deferred keys --queue "+q.Name, "queue %s: %s behind a message that failed", q.Name, keysWait(q))
}

func keysWait(q *relay.QueueState) string {
	return plural.Of(q.HeldLanes, "ordering key waits", "ordering keys wait")
}

// deadHeads is how many lanes of a queue wait for a person, as far as is known.
func deadHeads(report *status.Report, q *relay.QueueState) int {
	if report == nil {
		return 0
	}
	return min(q.HeldLanes, int(report.Of("dead_letter", q.Name)))
}

// stalled is since when deferred messages of a queue have been in memory, or in the
// table, and nothing of it has come back, although nobody wants that; nil if all is
// well. A queue with a rate may have to wait for its next request.
func (e *examiner) stalled(q *relay.QueueState) *time.Time {
	long := e.cfg.MaxAge
	if q.RatePerSecond > 0 {
		long += time.Duration(float64(time.Second) * 2 / q.RatePerSecond)
	}
	closed := q.Paused || q.Gate.Closed || e.state.Router.Endpoint.Closed
	if closed || q.LastReturn != nil && e.age(q.LastReturn) < long {
		return nil
	}
	for _, since := range []*time.Time{q.OldestCached, q.Waits} {
		if e.age(since) >= long {
			return since
		}
	}
	return nil
}

// shorten leaves so many findings, and says that there were more.
func shorten(findings []Finding, most int) []Finding {
	if len(findings) <= most {
		return findings
	}
	more := finding("more", nil, "", "and %d more", []any{len(findings) - most})
	return append(findings[:most:most], more)
}
