package explain

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/paused"
	"github.com/outbox-relay/outbox-relay/internal/plural"
	"github.com/outbox-relay/outbox-relay/internal/terminal"
)

// tell writes the timeline.
func (r *Report) tell() {
	add := func(at *time.Time, text string) {
		if at != nil {
			r.Timeline = append(r.Timeline, Event{*at, text})
		}
	}
	if m := r.Message; m != nil {
		by := "its transaction began"
		if m.Details != nil && m.Details.Transaction != "" {
			by = "its transaction began, number " + m.Details.Transaction
		}
		add(m.CreatedAt, by)
		if m.Details != nil {
			add(m.Details.CommittedAt, "committed")
			add(m.Details.DeliverAt, "the application wants it delivered from now on")
		}
	}
	if s := r.Dispatched; s != nil {
		add(&s.At, fmt.Sprintf("dispatched, with attempt %d", s.Attempts))
	}
	if d := r.Deferred; d != nil {
		add(&d.At, "deferred")
		add(d.UnknownSince, "an attempt ended without an answer: the queue may have it")
		if r.ahead(d.NotBefore) {
			add(d.NotBefore, "next attempt")
		}
	}
	if x := r.DeadLetter; x != nil {
		text := fmt.Sprintf("dead letter after %s: %s", plural.Of(x.Attempts, "attempt", "attempts"), failure(x.Reason, x.LastStatus, x.LastCode, x.LastError))
		if x.RequestID != "" {
			text += ", request " + strconv.Quote(x.RequestID)
		}
		add(&x.At, text)
		add(x.UnknownSince, "an attempt ended without an answer: the queue may have it")
		add(x.DiscardedAt, "discarded")
	}
	add(r.Withdrawn, "withdrawn")
	slices.SortStableFunc(r.Timeline, func(a, b Event) int { return a.At.Compare(b.At) })
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintln(w, r.Summary)
	if r.State == Unknown {
		fmt.Fprintln(w, "\nThat can mean:")
		for _, p := range r.Possibilities {
			fmt.Fprintln(w, "  - "+p)
		}
		_, err := fmt.Fprintf(w, "\nrelay: %s\n", &r.Mover)
		return err
	}
	if r.Fault != "" {
		fmt.Fprintln(w, "FAULT: "+r.Fault)
	}
	fmt.Fprintf(w, "next: %s\n", r.Next)
	for _, c := range r.Commands {
		fmt.Fprintln(w, "      "+c)
	}
	fmt.Fprintln(w)
	for _, e := range r.Timeline {
		mark := " "
		if e.At.After(r.At) {
			mark = ">" // to come
		}
		fmt.Fprintf(w, "%s %s  %s\n", mark, moment(e.At), e.Text)
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range r.rows() {
		fmt.Fprintf(table, "%s\t%s\n", row[0], row[1])
	}
	return table.Flush()
}

func (r *Report) rows() (rows [][2]string) {
	add := func(name, format string, args ...any) {
		rows = append(rows, [2]string{name, fmt.Sprintf(format, args...)})
	}
	if m := r.Message; m != nil {
		add("key", "%s", m.Key)
		if m.OrderingKey != "" {
			add("ordering key", "%q", m.OrderingKey)
		}
		if d := m.Details; d != nil {
			add("payload", "%d bytes", d.PayloadBytes)
			if d.DelaySeconds != nil {
				add("delay", "%d s, which the queue waits", *d.DelaySeconds)
			}
			if d.Priority != nil {
				add("priority", "%d", *d.Priority)
			}
			if r.cfg.Payload {
				add("", "%s", terminal.Line(string(d.Payload)))
				if d.Headers != nil {
					add("headers", "%s", terminal.Line(string(d.Headers)))
				}
			}
		}
	} else {
		add("message", "its row was deleted")
	}
	if text := r.attempts(); text != "" {
		add("attempts", "%s", text)
	}
	if l := r.Lane; l != nil {
		if l.Kind == "message" {
			add("before it", "%s in its queue; it has no ordering key and waits for none of them", bounded(l.InQueue, "deferred message", "deferred messages"))
		} else {
			add("before it", "%s in its lane%s; %d in its queue", bounded(l.Before, "deferred message", "deferred messages"), l.first(), l.InQueue)
		}
	}
	if q := r.Queue; q != nil {
		add("queue", "%s: %s", q.Name, q.text())
	}
	add("relay", "%s", &r.Mover)
	return rows
}

// first is the message for which the lane waits.
func (l *Lane) first() string {
	if l.First == nil {
		return ""
	}
	return fmt.Sprintf(", first message %d: %s", l.First.MessageID, failure(l.First.Reason, l.First.LastStatus, "", l.First.LastError))
}

// text is what of the settings is not as usual, and what decides.
func (q *Queue) text() string {
	parts := []string{"not paused"}
	if q.Paused {
		parts[0] = "paused " + q.Told(paused.Moment)
	}
	if q.Ordering == "queue" {
		parts = append(parts, "one lane")
	}
	if q.RatePerSecond != nil {
		parts = append(parts, fmt.Sprintf("at most %g messages a second", *q.RatePerSecond))
	}
	if q.MaxInFlight != nil {
		parts = append(parts, plural.Of(*q.MaxInFlight, "request at once", "requests at once"))
	}
	if q.MaxAttempts != nil {
		parts = append(parts, plural.Of(*q.MaxAttempts, "attempt", "attempts"))
	}
	if q.OnDeadLetter == "hold" {
		parts = append(parts, "a dead letter holds its lane")
	}
	if q.Envelope != "none" {
		parts = append(parts, "envelope "+q.Envelope)
	}
	return strings.Join(parts, ", ")
}
