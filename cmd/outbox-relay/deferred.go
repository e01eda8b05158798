package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/plural"
)

func newDeferred(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deferred",
		Short: "List deferred messages, and end their wait",
		Args:  noArguments,
		RunE:  needVerb,
	}
	cmd.AddCommand(
		newDeferredList(p),
		newDeferredKeys(p),
		newMakeDue(p, operate.Scheduled, "release", "Send scheduled messages now",
			"release sends messages now whose deliver_at is in the future. They take the place in their\n"+
				"ordering key that they would have if they were written now."),
		newMakeDue(p, operate.Retries, "retry-now", "Try messages again now",
			"retry-now ends the wait of messages that were tried and failed. Those behind them in the\n"+
				"same ordering key follow by themselves. It opens no queue that is paused or closed, and forgets\n"+
				"no attempts."),
	)
	return cmd
}

// deferredList is the JSON of deferred list.
type deferredList struct {
	SchemaVersion int                `json:"schema_version"`
	Matching      operate.Count      `json:"matching"`
	Deferred      []operate.Deferred `json:"deferred"`
}

func newDeferredList(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [ID...]",
		Short: "Count and list deferred messages",
	}
	f := filterFlags(cmd, listLimit)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := readFilter(cmd, f, args); err != nil {
			return err
		}
		list := deferredList{SchemaVersion: 1}
		err := p.operate(cmd, func(ctx context.Context, o *operate.Operator) (err error) {
			if list.Matching, err = o.CountDeferred(ctx, *f); err != nil {
				return err
			}
			list.Deferred, err = o.Deferred(ctx, *f)
			return err
		})
		switch {
		case err != nil:
			return err
		case *asJSON:
			return p.printJSON(list)
		}
		return p.printDeferred(list)
	}
	return cmd
}

func (p *program) printDeferred(list deferredList) error {
	n := list.Matching
	fmt.Fprintf(p.out, "%s %s\n", counted(n, "deferred message", "deferred messages"), plural.Agree(n.Count, "matches", "match"))
	if len(list.Deferred) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tQUEUE\tKEY\tORDERING KEY\tDEFERRED\tREASON\tNOT BEFORE\tATTEMPTS\tSTATUS\tERROR")
	for _, d := range list.Deferred {
		notBefore := "-"
		if d.NotBefore != nil {
			notBefore = moment(*d.NotBefore)
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", d.MessageID, orDash(d.Queue), orDash(d.Key), foreign(d.OrderingKey),
			moment(d.DeferredAt), d.Reason, notBefore, d.Attempts, number(d.LastStatus), foreign(d.LastError))
	}
	return p.flushList(table, len(list.Deferred), n)
}

// newMakeDue is release and retry-now, which differ in what they look for.
func newMakeDue(p *program, kind operate.Kind, name, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name + " [ID...]",
		Short: short,
		Long: long + "\n\nA single message that is named by id or key is done at once; more than one are counted, and\n" +
			"done with --yes.",
	}
	f := filterFlags(cmd, 0)
	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := readFilter(cmd, f, args); err != nil {
			return err
		}
		return p.operate(cmd, func(ctx context.Context, o *operate.Operator) error { return p.makeDue(ctx, o, kind, f, *yes) })
	}
	return cmd
}

func (p *program) makeDue(ctx context.Context, o *operate.Operator, kind operate.Kind, f *operate.Filter, yes bool) error {
	ids, err := o.WaitingIDs(ctx, kind, *f)
	if err != nil {
		return err
	}
	what := "for a retry"
	if kind == operate.Scheduled {
		what = "for deliver_at"
	}
	fmt.Fprintf(p.out, "%s %s\n", plural.Of(len(ids), "message waits", "messages wait"), what)
	if len(ids) == 0 && f.Named() {
		return p.explainWaiting(ctx, o, f)
	}
	if !p.goAhead(f, len(ids), yes) {
		return nil
	}
	done, err := o.MakeDue(ctx, kind, ids)
	fmt.Fprintf(p.out, "%s due; a running relay takes them within a second\n", plural.Of(done, "message is", "messages are"))
	return err
}

// explainWaiting says for what messages wait that were named and wait for
// something else.
func (p *program) explainWaiting(ctx context.Context, o *operate.Operator, f *operate.Filter) error {
	found, err := o.Deferred(ctx, *f)
	if err != nil {
		return err
	}
	for _, d := range found {
		if d.NotBefore == nil {
			fmt.Fprintf(p.err, "message %d (%s) goes as soon as its queue, or what is before it in its ordering key, does\n", d.MessageID, d.Reason)
		} else {
			fmt.Fprintf(p.err, "message %d is %s, not before %s\n", d.MessageID, d.Reason, moment(*d.NotBefore))
		}
	}
	return errNothingNamed
}
