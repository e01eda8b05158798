package admin

import (
	"fmt"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/plural"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
)

// lately is about what has happened, or waits, beside what moves: the relay goes
// on, and a person may have something to do.
func (e *examiner) lately() {
	e.deadLetters()
	e.recovered()
	e.unseen()
}

// deadLetters is about those that need a person, as the database knows them. What
// the process has counted is more than that: somebody may have dealt with them.
func (e *examiner) deadLetters() {
	const list = "outbox-relay dead-letters list"
	last := e.state.Totals.LastDeadLetter
	switch r := e.report; {
	case r != nil && r.DeadLetters.Count > 0:
		n, since := r.DeadLetters, e.seenSince(r.DeadLetters.OldestSeconds)
		text := plural.Of(n.Count, "dead letter needs a person", "dead letters need a person")
		if n.AtLeast {
			text = "at least " + text
		}
		if since != nil {
			text += fmt.Sprintf(", the oldest for %s", e.ago(since))
		}
		e.warn("dead_letters", since, list, "%s%s", text, e.asOf())
	case r != nil && last != nil && last.After(r.Looked):
		e.warn("dead_letters", last, list, "a message became a dead letter %s ago", e.ago(last))
	case r == nil && last != nil && e.age(last) < recent:
		e.warn("dead_letters", last, list, "%s since the start, the last one %s ago; Postgres has not said whether they still need a person",
			plural.Of(e.state.Totals.DeadLetters, "message became a dead letter", "messages became dead letters"), e.ago(last))
	}
}

// recovered is about messages that the sweep has found, until it has found none for
// long enough and nothing is known that hides them.
func (e *examiner) recovered() {
	at, sweep, found := e.state.Totals.LastRecovered, e.state.Sweep, int64(e.state.Totals.Recovered)
	if at == nil || e.age(at) >= recent {
		return
	}
	clean := 0
	if sweep != nil {
		clean = sweep.Clean
		if sweep.Found > 0 {
			found = sweep.Found
		}
	}
	hidden := e.state.Source.Doubts != "" || e.state.Source.Trouble != nil
	if clean >= relay.CleanPasses && !hidden {
		return
	}
	then, hint := "", "nothing is lost; outbox-relay doctor looks for the cause. This goes when two sweeps in a row find none"
	switch {
	case hidden:
		then, hint = "; the cause is still there", "outbox-relay doctor prints what mends it"
	case e.state.SlotMoved:
		then, hint = "; somebody had moved the slot past them", "find out who calls pg_replication_slot_advance; this goes when two sweeps in a row find none"
	case clean > 0:
		then = "; the sweep after that found none"
	}
	if next := status.NextSweep(e.state); next != "" {
		then += "; " + next
	}
	e.warn("recovered", at, hint, "%s in the table that the stream had not shown, the last %s ago%s",
		plural.Of(found, "message was found", "messages were found"), e.ago(at), then)
}

// unseen is about messages that have been there for a while, and that the stream has
// not shown.
func (e *examiner) unseen() {
	if e.report == nil || e.report.Unseen == nil || e.report.Unseen.Count == 0 {
		return
	}
	u := *e.report.Unseen
	since := e.seenSince(u.OldestSeconds)
	found := e.state.Totals.LastRecovered
	if e.age(since) < patience || found != nil && found.After(e.report.Looked) { // the sweep was there since
		return
	}
	old := e.age(since).Seconds()
	u.OldestSeconds = &old
	u.Unwritten = status.Unwritten(e.state) // which is newer than the report
	hint := "outbox-relay doctor says whether the publication hides them (D20, D21)"
	switch {
	case u.Unwritten: // the finding about the writer says what to do
		hint = ""
	case u.MemoryFull:
		hint = ""
	case e.state.Polls: // in the order of their numbers, which open transactions may fill
		hint = "outbox-relay doctor names the transactions that have been open for long (D33)"
	}
	e.warn("unseen", since, hint, "%s%s", u.Text(status.NextSweep(e.state)), e.asOf())
}

// seenSince is when something began that was so old when the report was made.
func (e *examiner) seenSince(seconds *float64) *time.Time {
	if seconds == nil {
		return nil
	}
	at := e.report.Looked.Add(-time.Duration(*seconds * float64(time.Second)))
	return &at
}

// asOf says how old the report is, if a person had better know.
func (e *examiner) asOf() string {
	if old := e.ago(&e.report.Looked); old > 2*lookAge {
		return fmt.Sprintf(", as of %s ago", old)
	}
	return ""
}
