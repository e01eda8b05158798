package status

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Print writes the report for people.
func (r *SlotReport) Print(w io.Writer) error {
	fmt.Fprintln(w, r.sentence())
	if r.Exists {
		if err := printTable(w, r.rows()); err != nil {
			return err
		}
	}
	return r.printUnused(w)
}

// sentence says first what a person wants to know first.
func (r *SlotReport) sentence() string {
	text := fmt.Sprintf("slot %q ", r.Name)
	switch {
	case r.Trouble != "":
		return text + r.Trouble
	case !r.Active:
		text += "is not in use"
		if r.InactiveSince != nil {
			text += " since " + moment(*r.InactiveSince)
		}
	case r.Making != nil:
		return text + fmt.Sprintf("is being made by process %d, which waits for %s", r.Making.PID, r.Making.awaits())
	default:
		text += "is in use"
		if r.ActivePID != nil {
			text += fmt.Sprintf(" by process %d", *r.ActivePID)
		}
		if r.Holder != "" {
			text += fmt.Sprintf(" (%q)", r.Holder)
		}
		text += silence(r.HeardSeconds, r.ActivePID)
	}
	return text
}

func (r *SlotReport) rows() [][2]string {
	rows := append(r.Making.rows(), [][2]string{
		{"kind", fmt.Sprintf("%s, plugin %q, database %q", r.Type, r.Plugin, r.Database)},
		{"wal_status", r.WALStatus},
		{"restart LSN", orNone(r.RestartLSN)},
		{"confirmed flush", orNone(r.ConfirmedFlushLSN)},
		{"retained WAL", r.bytes(r.RetainedBytes)},
		{"unconfirmed WAL", r.bytes(r.UnconfirmedBytes)},
		{"limit", r.limit()},
	}...)
	if r.Failover != nil {
		rows = append(rows, [2]string{"failover", yesNo(*r.Failover)})
	}
	if r.Synced != nil {
		rows = append(rows, [2]string{"synced", yesNo(*r.Synced)})
	}
	return rows
}

// bytes writes a size for people and for those who copy it elsewhere.
func (r *SlotReport) bytes(n *int64) string {
	if n == nil {
		return "unknown"
	}
	if *n < 1024 {
		return size(*n)
	}
	return fmt.Sprintf("%s (%d bytes)", size(*n), *n)
}

func (r *SlotReport) limit() string {
	if r.LimitBytes == nil {
		return "none: max_slot_wal_keep_size is -1, the slot may fill the disk"
	}
	text := size(*r.LimitBytes) + " (max_slot_wal_keep_size)"
	if r.SafeBytes != nil {
		text += ", " + size(*r.SafeBytes) + " until loss"
	}
	return text
}

func (r *SlotReport) printUnused(w io.Writer) error {
	switch n := len(r.Unused); n {
	case 0:
		return nil
	case 1:
		fmt.Fprintln(w, "\n1 other slot of pgoutput in this database is not in use:")
	default:
		fmt.Fprintf(w, "\n%d other slots of pgoutput in this database are not in use:\n", n)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SLOT\tRETAINED WAL\tWAL_STATUS\tA RELAY OF THIS OUTBOX USED IT\tDROP IT WITH")
	for i := range r.Unused {
		s := &r.Unused[i]
		used, drop := "no: ask whose it is", "-"
		if s.Earlier() {
			used, drop = "until "+moment(*s.LastUsed), s.Drop()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", s.Name, s.Retained(), s.WALStatus, used, drop)
	}
	return table.Flush()
}

func printTable(w io.Writer, rows [][2]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(table, "%s\t%s\n", row[0], row[1])
	}
	return table.Flush()
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
