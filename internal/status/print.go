package status

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/terminal"
)

// sentence is the report in one line: what a person wants to know first.
func (r *Report) sentence() string {
	parts := []string{r.Mover.String()}
	if text := r.notReady(); text != "" {
		parts = append(parts, text)
	}
	if len(r.Breakers) > 0 {
		parts = append(parts, r.paused())
	}
	if len(r.PausedQueues) > 0 {
		parts = append(parts, r.stopped())
	}
	if n := r.WithoutOutcome; n.Count == 0 {
		parts = append(parts, "no message without outcome")
	} else {
		parts = append(parts, n.number()+" waiting"+n.age()+r.Unseen.aside())
	}
	if r.Deferred.Count > 0 {
		parts = append(parts, r.Deferred.number()+" deferred"+r.reasons())
	}
	switch n := r.DeadLetters; n.Count {
	case 0:
	case 1:
		parts = append(parts, "1 dead letter")
	default:
		parts = append(parts, n.number()+" dead letters")
	}
	if s := r.Slot; s != nil && s.RetainedBytes != nil {
		parts = append(parts, "slot keeps "+size(*s.RetainedBytes)+s.limit())
	}
	return strings.Join(parts, ", ")
}

// limit says of what the slot keeps a part.
func (s *Slot) limit() string {
	if s.LimitBytes == nil {
		return " of WAL"
	}
	if text, hint := s.Danger(nil); text != "" {
		return " of " + size(*s.LimitBytes) + ": " + hint
	}
	return " of " + size(*s.LimitBytes)
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	if _, err := fmt.Fprintln(w, r.Summary); err != nil {
		return err
	}
	return printTable(w, r.rows())
}

func (r *Report) rows() [][2]string {
	rows := [][2]string{{"slot", r.slotName + ": does not exist"}}
	if s := r.Slot; s != nil {
		state := "not in use"
		switch {
		case s.Making != nil:
			state = "being made by " + s.user()
		case s.Active:
			state = "in use by " + s.user()
		}
		rows[0][1] = s.Name + ": " + state + ", wal_status " + s.WALStatus
		rows = append(rows, s.Making.rows()...)
		rows = append(rows,
			[2]string{"retained WAL", sizeOrUnknown(s.RetainedBytes)},
			[2]string{"unconfirmed WAL", sizeOrUnknown(s.UnconfirmedBytes)},
			[2]string{"WAL until loss", s.untilLoss()},
		)
	}
	if r.Polls() {
		rows = append(rows, [2]string{"lock", r.lock()})
		if r.Slot == nil {
			rows = rows[1:]
		}
	}
	if relay := r.Relay; relay != nil {
		rows = append(rows,
			[2]string{"holder", relay.Holder + ", version " + relay.Version},
			[2]string{"epoch", fmt.Sprint(relay.Epoch)},
		)
	}
	if relay := r.Relay; relay != nil && !r.Polls() {
		rows = append(rows,
			[2]string{"recorded", relay.recorded(r.At)},
		)
		if relay.SlotMoves > 0 {
			rows = append(rows, [2]string{"slot moves", fmt.Sprintf("%d by somebody else", relay.SlotMoves)})
		}
	}
	if r.RelayError != "" {
		rows = append(rows, [2]string{"relay", terminal.Line(r.RelayError)})
	}
	rows = append(rows, r.findingRows()...)
	rows = append(rows, r.breakerRows()...)
	rows = append(rows, r.pauseRows()...)
	rows = append(rows,
		[2]string{"waiting", r.WithoutOutcome.number() + r.WithoutOutcome.age()},
	)
	rows = append(rows, r.unseenRows()...)
	rows = append(rows, [2]string{"deferred", r.Deferred.number() + r.Deferred.age() + r.pace()})
	for i := range r.DeferredReasons {
		reason := &r.DeferredReasons[i]
		rows = append(rows, [2]string{"  " + terminal.Line(reason.Reason), r.reasonText(reason)})
	}
	return append(rows,
		[2]string{"dead letters", r.DeadLetters.number() + r.DeadLetters.age()},
		[2]string{"claims", r.Claims.text()},
	)
}

// recorded is the place in the WAL that the relay noted last, and when. A row that a
// relay has only announced itself in has no place yet.
func (r *Relay) recorded(now time.Time) string {
	text := age(now.Sub(r.UpdatedAt).Seconds()) + " ago"
	if r.ConfirmedLSN != "" {
		text = r.ConfirmedLSN + ", " + text
	}
	return text
}

// lock is who polls.
func (r *Report) lock() string {
	if r.Poll == nil {
		return "not in use"
	}
	return fmt.Sprintf("in use by process %d", r.Poll.PID)
}

// user is who streams from the slot.
func (s *Slot) user() string {
	if s.ActivePID == nil {
		return "a process"
	}
	return fmt.Sprintf("process %d", *s.ActivePID)
}

func (s *Slot) untilLoss() string {
	switch {
	case s.SafeBytes != nil:
		return size(*s.SafeBytes)
	case s.WALStatus == "lost":
		return "lost"
	}
	return "no limit"
}

func (c Count) number() string {
	if c.AtLeast {
		return fmt.Sprintf("at least %d", c.Count)
	}
	return fmt.Sprint(c.Count)
}

func (c Count) age() string {
	if c.OldestSeconds == nil {
		return ""
	}
	if c.AtLeast {
		return " (oldest at least " + age(*c.OldestSeconds) + ")"
	}
	return " (oldest " + age(*c.OldestSeconds) + ")"
}

func (r *Report) pace() string {
	text := r.DeferredPace.Text()
	if text == "" || r.Deferred.Count == 0 { // the relay has looked earlier
		return ""
	}
	return ": " + text
}

// age writes seconds with one digit more than a person needs.
func age(seconds float64) string {
	d := time.Duration(max(0, seconds) * float64(time.Second))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%.1f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.1f h", d.Hours())
	}
	return fmt.Sprintf("%.1f days", d.Hours()/24)
}

func sizeOrUnknown(bytes *int64) string {
	if bytes == nil {
		return "unknown"
	}
	return size(*bytes)
}

// size writes a number of bytes as Postgres does, in powers of 1024.
func size(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(bytes), 0
	for ; value >= 1024 && unit < len(units)-1; unit++ {
		value /= 1024
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
