package verify

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/plural"
)

// sentence is the report in one line.
func (r *Report) sentence() string {
	text := fmt.Sprintf("%s, unaccounted %d", plural.Of(r.Messages, "message", "messages"), r.Unaccounted)
	others := int64(0)
	for kind, n := range r.Faults {
		if kind != Unaccounted {
			others += n
		}
	}
	if others > 0 {
		text += ", " + plural.Of(others, "other fault", "other faults")
	}
	switch {
	case !r.OK:
	case r.InFlight == 0:
		text += ": each has one outcome"
	case r.atWork:
		text += ": each has one outcome or is on its way"
	default: // nothing is on its way by itself
		text += fmt.Sprintf(": each has one outcome or waits, and %s; %d %s", r.Mover, r.InFlight, plural.Agree(r.InFlight, "waits", "wait"))
	}
	if r.Late > 0 {
		text += fmt.Sprintf(", %d of them for long", r.Late)
	}
	return text
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintln(w, r.Summary)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range r.rows() {
		fmt.Fprintf(table, "%s\t%s\n", row[0], row[1])
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if err := r.printRanges(w); err != nil {
		return err
	}
	return r.printFaults(w)
}

func (r *Report) rows() [][2]string {
	numbers := "none"
	if r.To >= r.From {
		numbers = fmt.Sprintf("%d to %d", r.From, r.To)
	}
	took := time.Duration(r.Seconds * float64(time.Second)).Round(time.Millisecond)
	rows := [][2]string{
		{"numbers", fmt.Sprintf("%s, in %s, %s", numbers, plural.Of(r.Batches, "batch", "batches"), took)},
		{"messages", fmt.Sprint(r.Messages)},
		{"  dispatched", fmt.Sprint(r.Dispatched)},
		{"  deferred", fmt.Sprint(r.Deferred)},
		{"  dead letters", fmt.Sprint(r.DeadLetters)},
		{"  in flight", fmt.Sprint(r.InFlight) + r.late()},
		{"  unaccounted", fmt.Sprint(r.Unaccounted)},
		{"withdrawn", fmt.Sprint(r.Withdrawn)},
	}
	for _, c := range []struct {
		n    int64
		what string
	}{
		{r.DispatchedDeleted, "were dispatched"}, {r.DeferredDeleted, "will be withdrawn"}, {r.DeadDeleted, "are dead letters"},
	} {
		if c.n > 0 {
			rows = append(rows, [2]string{"deleted", fmt.Sprintf("%d that %s", c.n, c.what)})
		}
	}
	return append(rows, [2]string{"relay", r.Mover})
}

// late says of what is in flight why that may be wrong.
func (r *Report) late() string {
	if r.Late == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of them for long: no relay has come to them yet, `outbox-relay status` says why", r.Late)
}

func (r *Report) printRanges(w io.Writer) error {
	if len(r.Ranges) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NUMBERS\tMESSAGES\tDISPATCHED\tDEFERRED\tDEAD\tWITHOUT OUTCOME\tWITHDRAWN")
	for i := range r.Ranges {
		c := &r.Ranges[i]
		fmt.Fprintf(table, "%d-%d\t%d\t%d\t%d\t%d\t%d\t%d\n",
			c.From, c.To, c.Messages, c.Dispatched, c.Deferred, c.DeadLetters, c.InFlight, c.Withdrawn)
	}
	return table.Flush()
}

func (r *Report) printFaults(w io.Writer) error {
	total := int64(0)
	for _, kind := range Kinds {
		n := r.Faults[kind]
		if n == 0 {
			continue
		}
		total += n
		what, remedy := kind.Meaning()
		fmt.Fprintf(w, "\n%s: %d %s\n  %s\n", kind, n, what, remedy)
	}
	if total == 0 {
		return nil
	}
	fmt.Fprintln(w)
	for i := range r.Examples {
		f := &r.Examples[i]
		fmt.Fprintf(w, "message %d (%s): outbox-relay explain %d\n", f.MessageID, f.text(), f.MessageID)
	}
	if more := total - int64(len(r.Examples)); more > 0 {
		fmt.Fprintf(w, "and %d more; --limit lists them\n", more)
	}
	return nil
}
