package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/plural"
)

func newDeadLetters(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "List dead letters, send them again, or discard them",
		Long: "dead-letters works with the messages that were set aside. It needs no running relay; a\n" +
			"running one finds redriven messages within a second.",
		Args: noArguments,
		RunE: needVerb,
	}
	cmd.AddCommand(newDeadLettersList(p), newDeadLettersShow(p), newDeadLettersRedrive(p), newDeadLettersDiscard(p))
	return cmd
}

func newDeadLettersList(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [ID...]",
		Short: "Count and list dead letters",
	}
	f := filterFlags(cmd, listLimit)
	includeDiscarded(cmd, f)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := readFilter(cmd, f, args); err != nil {
			return err
		}
		list := deadLetterList{SchemaVersion: 1}
		err := p.operate(cmd, func(ctx context.Context, o *operate.Operator) (err error) {
			if list.Matching, err = o.CountDeadLetters(ctx, *f); err != nil {
				return err
			}
			list.DeadLetters, err = o.DeadLetters(ctx, *f)
			return err
		})
		switch {
		case err != nil:
			return err
		case *asJSON:
			return p.printJSON(list)
		}
		return p.printDeadLetters(list)
	}
	return cmd
}

func includeDiscarded(cmd *cobra.Command, f *operate.Filter) {
	cmd.Flags().BoolVar(&f.Discarded, "include-discarded", false, "also those that were discarded")
}

// deadLetterList is the JSON of dead-letters list.
type deadLetterList struct {
	SchemaVersion int                  `json:"schema_version"`
	Matching      operate.Count        `json:"matching"`
	DeadLetters   []operate.DeadLetter `json:"dead_letters"`
}

func (p *program) printDeadLetters(list deadLetterList) error {
	n := list.Matching
	fmt.Fprintf(p.out, "%s %s\n", counted(n, "dead letter", "dead letters"), plural.Agree(n.Count, "matches", "match"))
	if len(list.DeadLetters) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tQUEUE\tKEY\tORDERING KEY\tDIED\tREASON\tSTATUS\tATTEMPTS\tERROR")
	for _, d := range list.DeadLetters {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", d.MessageID, orDash(d.Queue), orDash(d.Key), foreign(d.OrderingKey),
			moment(d.DiedAt), d.Reason, number(d.LastStatus), d.Attempts, foreign(d.LastError))
	}
	return p.flushList(table, len(list.DeadLetters), n)
}

// flushList ends a list and says if it is not the whole of it.
func (p *program) flushList(table *tabwriter.Writer, listed int, n operate.Count) error {
	if err := table.Flush(); err != nil {
		return err
	}
	if int64(listed) < n.Count {
		fmt.Fprintf(p.out, "the first %d are listed; --limit lists more\n", listed)
	}
	return nil
}

func newDeadLettersShow(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one dead letter, discarded or not",
		Args:  exactly("a message id"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := messageID(cmd, args[0])
		if err != nil {
			return err
		}
		var d *operate.DeadLetter
		var behind operate.Count
		err = p.operate(cmd, func(ctx context.Context, o *operate.Operator) (err error) {
			if d, err = o.DeadLetter(ctx, id); err != nil {
				return err
			}
			behind, err = o.Behind(ctx, id)
			return err
		})
		switch {
		case err != nil:
			return err
		case *asJSON:
			return p.printJSON(deadLetterDocument{1, *d, behind})
		}
		return p.printDeadLetter(d, behind)
	}
	return cmd
}

// deadLetterDocument is the JSON of dead-letters show.
type deadLetterDocument struct {
	SchemaVersion int `json:"schema_version"`
	operate.DeadLetter
	// Behind are the messages that wait for it, because its queue holds a lane for a
	// dead letter.
	Behind operate.Count `json:"behind"`
}

func (p *program) printDeadLetter(d *operate.DeadLetter, behind operate.Count) error {
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	for _, row := range [][2]string{
		{"message", strconv.FormatInt(d.MessageID, 10)},
		{"key", orDash(d.Key)},
		{"queue", orDash(d.Queue)},
		{"ordering key", foreign(d.OrderingKey)},
		{"died", moment(d.DiedAt)},
		{"reason", d.Reason},
		{"attempts", d.Tries()},
		{"last status", number(d.LastStatus)},
		{"last code", foreign(d.LastCode)},
		{"last error", foreign(d.LastError)},
		{"request id", foreign(d.RequestID)},
		{"waiting behind it", deferredCount(behind)},
	} {
		fmt.Fprintf(table, "%s\t%s\n", row[0], row[1])
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch {
	case d.Reason == operate.ReasonDiscarded:
	case d.MessageGone:
		fmt.Fprintf(p.out, "the application deleted the message: there is nothing to redrive\ndead-letters discard %d --why ... takes it off the list\n", d.MessageID)
	default:
		fmt.Fprintf(p.out, deadLetterNext, d.MessageID, d.MessageID)
	}
	return nil
}

// deadLetterNext is what a person can do with a dead letter.
const deadLetterNext = `dead-letters redrive %d sends it again, as it is, before what waits behind it
dead-letters discard %d --why ... gives it up, and what waits behind it goes on
a message cannot be changed: if the queue will never take this one, let the application write another, with another key
`

func newDeadLettersRedrive(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redrive [ID...]",
		Short: "Send dead letters again, with the same key",
		Long: "redrive puts dead letters back, to be sent with the same key, each before later deferred\n" +
			"messages of its ordering key. A single one that is named by id or key is redriven at once;\n" +
			"more than one are counted, and redriven with --yes: 100 at a time, a second between.",
	}
	f := filterFlags(cmd, 0)
	includeDiscarded(cmd, f)
	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := readFilter(cmd, f, args); err != nil {
			return err
		}
		return p.operate(cmd, func(ctx context.Context, o *operate.Operator) error { return p.redrive(ctx, o, f, *yes) })
	}
	return cmd
}

func (p *program) redrive(ctx context.Context, o *operate.Operator, f *operate.Filter, yes bool) error {
	ids, gone, err := o.DeadLetterIDs(ctx, *f)
	if err != nil {
		return err
	}
	p.printMatches(len(ids)+len(gone), "dead letter", "dead letters")
	switch {
	case len(ids) == 0 && len(gone) == 1:
		return fmt.Errorf("message %d was deleted by the application: there is nothing to redrive", gone[0])
	case len(gone) > 0:
		fmt.Fprintf(p.out, "%s deleted by the application and left out\n", plural.Of(len(gone), "message was", "messages were"))
	case len(ids) == 0 && f.Named():
		return errNothingNamed
	}
	if !p.goAhead(f, len(ids), yes) {
		return nil
	}
	done, err := o.Redrive(ctx, ids, func(done int) {
		if len(ids) > done {
			fmt.Fprintf(p.err, "%d of %d\n", done, len(ids))
		}
	})
	fmt.Fprintf(p.out, "%s redriven; a running relay takes them within a second\n", plural.Of(done, "message", "messages"))
	return err
}

// errNothingNamed keeps a script from believing that something was done.
var errNothingNamed = errors.New("what was named is not there, or not in a state for this")

func (p *program) printMatches(n int, one, many string) {
	fmt.Fprintf(p.out, "%s %s\n", plural.Of(n, one, many), plural.Agree(n, "matches", "match"))
}

func newDeadLettersDiscard(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "discard [ID...] --why TEXT",
		Short: "Decide that dead letters will not be sent",
		Long: "discard marks dead letters as discarded. They stay on record with the text, and are left out\n" +
			"of lists and redrives that do not say --include-discarded.",
	}
	f := filterFlags(cmd, 0)
	why := cmd.Flags().String("why", "", "the `text` that stays with them")
	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := readFilter(cmd, f, args); err != nil {
			return err
		}
		if *why == "" {
			return &usageError{cmd.CommandPath(), "--why is missing: who looks later wants to know"}
		}
		return p.operate(cmd, func(ctx context.Context, o *operate.Operator) error { return p.discard(ctx, o, f, *why, *yes) })
	}
	return cmd
}

func (p *program) discard(ctx context.Context, o *operate.Operator, f *operate.Filter, why string, yes bool) error {
	ids, gone, err := o.DeadLetterIDs(ctx, *f)
	if err != nil {
		return err
	}
	ids = append(ids, gone...)
	p.printMatches(len(ids), "dead letter", "dead letters")
	if len(ids) == 0 && f.Named() {
		return errNothingNamed
	}
	if !p.goAhead(f, len(ids), yes) {
		return nil
	}
	done, err := o.Discard(ctx, ids, why)
	fmt.Fprintf(p.out, "%s discarded\n", plural.Of(done, "dead letter", "dead letters"))
	return err
}

// moment writes a time for people and for sorting.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func number(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// foreign makes text that others wrote safe for a terminal.
func foreign(text string) string {
	if text == "" {
		return "-"
	}
	return quote(text)
}
