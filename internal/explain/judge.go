package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/terminal"
)

// judge says in words what was read.
func (r *Report) judge(name string) {
	if r.State == Unknown {
		r.Summary = "there is no message with the number or key " + strconv.Quote(name)
		if _, err := strconv.ParseInt(name, 10, 64); err != nil || r.cfg.Key {
			r.Summary = "there is no message with the key " + strconv.Quote(name)
		}
		r.Next = "nothing, as far as can be told"
		return
	}
	r.State = r.state()
	if x := r.DeadLetter; x != nil && r.Deferred != nil && r.Queue != nil {
		x.HoldsLane = r.Deferred.Reason == reasonDeadLetter && r.Deferred.NotBefore == nil && r.Queue.OnDeadLetter == "hold"
	}
	r.Fault = r.fault()
	switch r.State {
	case Dispatched:
		r.judgeDispatched()
	case Dead:
		r.judgeDead()
	case Withdrawn:
		r.say("was withdrawn: the application deleted it while it was deferred")
		r.Next = "nothing: it will not be sent"
	case Deferred:
		r.judgeDeferred()
	default:
		r.judgeWaiting()
	}
	r.tell()
}

const reasonDeadLetter = "dead_letter"

// state is that of the outcome which counts: what was dispatched stays that.
func (r *Report) state() State {
	switch {
	case r.Dispatched != nil:
		return Dispatched
	case r.DeadLetter != nil:
		return Dead
	case r.Deferred != nil:
		return Deferred
	case r.Withdrawn != nil:
		return Withdrawn
	}
	return Waiting
}

// fault says which outcomes exclude each other. `outbox-relay verify` decides by
// the same rules.
func (r *Report) fault() string {
	var has []string
	for _, outcome := range []struct {
		there bool
		name  string
	}{
		{r.Dispatched != nil, "dispatched"},
		{r.DeadLetter != nil, "a dead letter"},
		{r.Deferred != nil, "deferred"},
		{r.Withdrawn != nil, "withdrawn"},
	} {
		if outcome.there {
			has = append(has, outcome.name)
		}
	}
	d := r.Deferred
	holds := len(has) == 2 && r.DeadLetter != nil && d != nil && d.Reason == reasonDeadLetter
	held := len(has) == 2 && r.DeadLetter != nil && r.Withdrawn != nil && r.Message == nil
	switch {
	case len(has) > 1 && !holds && !held:
		return "it is " + strings.Join(has, " and ") + " at once: somebody changed the tables by hand; `outbox-relay verify` looks for more"
	case r.Withdrawn != nil && r.Message != nil:
		return "it is withdrawn and its row is there: somebody put it back"
	case d != nil && d.Reason == reasonDeadLetter && r.DeadLetter == nil && d.NotBefore == nil:
		return "it holds its lane as a dead letter, and there is none"
	case r.olderOutcome():
		return "its outcome is older than it is, and belongs to an earlier message with the same number: see D22 of `outbox-relay doctor`"
	}
	return ""
}

// clockSlack is what the clocks of two servers may differ by.
const clockSlack = time.Minute

// olderOutcome reports whether the outcome is that of another message, which had
// the number before.
func (r *Report) olderOutcome() bool {
	var at time.Time
	switch {
	case r.Dispatched != nil:
		at = r.Dispatched.At
	case r.DeadLetter != nil:
		at = r.DeadLetter.At
	default:
		return false
	}
	m := r.Message
	return m != nil && m.CreatedAt != nil && !m.CreatedAt.After(r.At) && at.Before(m.CreatedAt.Add(-clockSlack))
}

// say makes the sentence.
func (r *Report) say(format string, args ...any) {
	r.Summary = fmt.Sprintf("message %d %s", r.MessageID, fmt.Sprintf(format, args...))
}

// command adds one that changes what happens next.
func (r *Report) command(format string, args ...any) {
	r.Commands = append(r.Commands, "outbox-relay "+fmt.Sprintf(format, args...))
}

func (r *Report) judgeDispatched() {
	s := r.Dispatched
	text := "was dispatched at " + moment(s.At)
	if m := r.Message; m != nil && m.CreatedAt != nil {
		text += ", " + span(s.At.Sub(*m.CreatedAt)) + " after its transaction began"
	}
	if s.QueueMessageID != "" {
		text += ": the queue has it as " + strconv.Quote(s.QueueMessageID)
	}
	if s.PossibleDuplicate {
		text += ", and may have had it before"
	}
	r.say("%s", text)
	switch {
	case r.Message == nil:
		r.Next = "nothing: the application has deleted its row, and the outcome goes after RELAY_RETENTION"
	case r.Message.Details != nil && r.Message.Details.DelaySeconds != nil:
		r.Next = fmt.Sprintf("the queue hands it out %d s after it was published; the row goes after RELAY_RETENTION", *r.Message.Details.DelaySeconds)
	default:
		r.Next = "nothing: it is the queue's now, and the row goes after RELAY_RETENTION"
	}
}

func (r *Report) judgeDead() {
	x := r.DeadLetter
	id := r.MessageID
	if x.DiscardedAt != nil {
		r.say("is a dead letter that was discarded at %s", moment(*x.DiscardedAt))
		r.Next = "nothing: somebody decided that it will not be sent, and may take that back"
		if r.Message != nil {
			r.command("dead-letters redrive %d --include-discarded", id)
		}
		return
	}
	text := "is a dead letter: " + failure(x.Reason, x.LastStatus, x.LastCode, x.LastError)
	if x.HoldsLane {
		text += "; its lane waits for it"
	}
	r.say("%s", text)
	if r.Message == nil {
		r.Next = "nothing: its row was deleted, so there is nothing to send again"
		r.command("dead-letters discard %d --why TEXT", id)
		return
	}
	r.Next = "nothing, until a person decides: redrive sends it again with the same key, discard sets it aside for good"
	r.command("dead-letters redrive %d", id)
	r.command("dead-letters discard %d --why TEXT", id)
}

// failure is what went wrong last.
func failure(reason string, status *int, code, text string) string {
	reason = terminal.Line(reason)
	if status != nil && *status != 0 {
		reason += fmt.Sprintf(", status %d", *status)
	}
	if code != "" {
		reason += ", " + terminal.Line(code)
	}
	if text != "" {
		reason += " (" + terminal.Line(text) + ")"
	}
	return reason
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// span writes a duration for people.
func span(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%.1f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.1f h", d.Hours())
	}
	return days(d)
}

func days(d time.Duration) string {
	if d < 24*time.Hour {
		return d.String()
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Hours()/24), ".0") + " days"
}
