package explain

import (
	"fmt"
	"strconv"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/paused"
	"github.com/outbox-relay/outbox-relay/internal/plural"
)

// From aMoment on a message without outcome makes one ask what is in its way, and
// from longWaiting on whether the stream has shown it.
const (
	aMoment     = 2 * time.Second
	longWaiting = time.Minute
)

func (r *Report) judgeWaiting() {
	age := ""
	if r.Message.CreatedAt != nil {
		age = ", and is " + span(r.At.Sub(*r.Message.CreatedAt)) + " old"
	}
	r.say("is committed and has no outcome yet%s", age)
	switch {
	case r.stopped(), r.behind("it goes into the table behind them"):
	case r.Message.CreatedAt != nil && r.At.Sub(*r.Message.CreatedAt) > longWaiting:
		r.Next = "the relay takes it when the stream comes to it; status says what keeps it, and if nothing does, verify whether the stream has passed it, which would be a fault"
		r.command("status")
		r.command("verify --from %d --to %d", r.MessageID, r.MessageID)
	case r.Message.CreatedAt != nil && r.At.Sub(*r.Message.CreatedAt) > aMoment:
		r.Next = "the relay takes it as soon as the stream comes to it, which is a matter of milliseconds in normal life; status says what keeps it"
		r.command("status")
	default:
		r.Next = "the relay takes it as soon as the stream comes to it, within milliseconds in normal life"
	}
}

func (r *Report) judgeDeferred() {
	d := r.Deferred
	if r.Message == nil {
		if !d.visible {
			r.say("is deferred, and its transaction is not visible yet")
			r.Next = "the relay sends it when it is"
			return
		}
		r.say("was deleted by the application while it was deferred")
		r.Next = "it is withdrawn as soon as its turn comes: it will not be sent"
		return
	}
	r.say("is deferred: %s", r.why())
	switch {
	case r.Fault != "":
		r.Next = "it waits for ever; see the page for operators, \"Daily check\""
	case r.stopped():
	case d.Reason == "scheduled" && r.ahead(d.NotBefore):
		r.Next = "the relay sends it at " + moment(*d.NotBefore) + ", in " + span(d.NotBefore.Sub(r.At))
		r.command("deferred release %d", r.MessageID)
	case r.behind("its turn comes after them"):
	case d.forEverNot:
		r.Next = "it waits for ever: its time was set to infinity"
		r.command("deferred retry-now %d", r.MessageID)
	case r.ahead(d.NotBefore):
		r.Next = "the relay tries again at " + moment(*d.NotBefore) + ", in " + span(d.NotBefore.Sub(r.At)) + r.left()
		r.command("deferred retry-now %d", r.MessageID)
	case r.Lane != nil && r.Lane.InQueue > 0:
		r.Next = "its turn comes: " + bounded(r.Lane.InQueue, "deferred message of its queue is", "deferred messages of its queue are") +
			" before it; if that does not become less, the queue takes nothing"
		r.command("deferred list --queue %s", r.Queue.Name)
	case r.Queue != nil && r.Queue.RatePerSecond != nil:
		r.Next = fmt.Sprintf("the relay sends it when its turn comes: its queue gets %g requests a second at most", *r.Queue.RatePerSecond)
		r.command("queues show %s", r.Queue.Name)
	default:
		r.Next = "the relay sends it now, or with its next probe if the queue takes nothing"
		r.command("status")
	}
}

// why says for what a deferred message waits.
func (r *Report) why() string {
	d := r.Deferred
	switch d.Reason {
	case "scheduled":
		return "it waits for the time that the application asked for"
	case "held":
		return "it waits its turn behind others" + after(d)
	case "redriven":
		return "a person has sent it again, and it is due" + after(d)
	case "recovered":
		return "it was found in the table, where the stream had not shown it" + after(d)
	case reasonDeadLetter:
		return "it keeps the place of a dead letter"
	}
	return fmt.Sprintf("the last of %s failed, %s", plural.Of(d.Attempts, "attempt", "attempts"), failure(d.Reason, d.LastStatus, "", d.LastError))
}

// after is what went wrong before the present wait.
func after(d *Deferral) string {
	if d.Attempts == 0 {
		return ""
	}
	return fmt.Sprintf(", after %s, %s", plural.Of(d.Attempts, "attempt", "attempts"), failure("the last one failed", d.LastStatus, "", d.LastError))
}

// left says how many failures make it a dead letter.
func (r *Report) left() string {
	d := r.Deferred
	if d.MaxAttempts == 0 {
		return ""
	}
	return "; " + plural.Of(max(1, d.MaxAttempts-d.Charged), "more failure that counts makes", "more failures that count make") + " it a dead letter"
}

// stopped says why nothing of the queue goes out, if that is so.
func (r *Report) stopped() bool {
	switch {
	case r.Mover.Held != "":
		r.Next = "nothing is sent before an operator adopts this server: it is " + r.Mover.Held
		r.command("adopt")
	case !r.Mover.AtWork():
		r.Next = "nothing, until a relay runs: " + r.Mover.String()
		r.command("status")
	case r.Queue.Paused:
		r.Next = fmt.Sprintf("nothing, until the queue %q is resumed: paused %s", r.Queue.Name, r.Queue.Told(paused.Moment))
		r.command("queues resume %s", r.Queue.Name)
	default:
		return false
	}
	return true
}

// behind says what is before the message in its lane, if anything is.
func (r *Report) behind(then string) bool {
	lane := r.Lane
	if lane == nil || lane.First == nil {
		return false
	}
	first := lane.First
	text := bounded(lane.Before, "deferred message is", "deferred messages are") + " before it in its " + lane.name() + ", and " + then
	switch {
	case first.Reason == reasonDeadLetter && first.NotBefore == nil && r.Queue.OnDeadLetter == "hold":
		text += fmt.Sprintf("; the first, message %d, is a dead letter that holds the lane until a person decides", first.MessageID)
		r.command("dead-letters show %d", first.MessageID)
		r.command("dead-letters redrive %d", first.MessageID)
	case r.ahead(first.NotBefore):
		text += fmt.Sprintf("; the first, message %d, is tried again at %s, after %s", first.MessageID, moment(*first.NotBefore),
			failure(first.Reason, first.LastStatus, "", first.LastError))
		r.command("deferred retry-now %d", first.MessageID)
	default:
		text += fmt.Sprintf("; the first is message %d, %s", first.MessageID, failure(first.Reason, first.LastStatus, "", first.LastError))
		r.command("explain %d", first.MessageID)
	}
	r.Next = text
	return true
}

func (l *Lane) name() string {
	if l.Kind == "queue" {
		return "queue, which is one lane"
	}
	return "ordering key"
}

// ahead reports whether a time is to come.
func (r *Report) ahead(t *time.Time) bool { return t != nil && t.After(r.At) }

// bounded is a number that was counted up to the bound.
func bounded(n int64, one, many string) string {
	if n >= Bound {
		return "at least " + strconv.FormatInt(n, 10) + " " + many
	}
	return plural.Of(n, one, many)
}
