package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/internal/operate"
)

// keyBacklogs is the JSON of deferred keys.
type keyBacklogs struct {
	SchemaVersion int                  `json:"schema_version"`
	Keys          []operate.KeyBacklog `json:"keys"`
}

func newDeferredKeys(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Count deferred messages by ordering key",
		Long: "keys lists the ordering keys with the most deferred messages, each with the one that goes first: what\n" +
			"that waits for, all behind it wait for. A key whose first message was never tried is slower than its\n" +
			"messages come: those of one key go one at a time. Of more than 100,000 messages the first are counted.",
		Args: noArguments,
	}
	queue := cmd.Flags().String("queue", "", "only of this queue")
	most := cmd.Flags().Int("limit", 20, "ordering keys at most")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *most < 1 {
			return &usageError{cmd.CommandPath(), fmt.Sprintf("--limit is %d, want 1 or more", *most)}
		}
		list := keyBacklogs{SchemaVersion: 1}
		err := p.operate(cmd, func(ctx context.Context, o *operate.Operator) (err error) {
			list.Keys, err = o.DeferredKeys(ctx, *queue, *most)
			return err
		})
		switch {
		case err != nil:
			return err
		case *asJSON:
			return p.printJSON(list)
		}
		return p.printKeys(list.Keys)
	}
	return cmd
}

func (p *program) printKeys(keys []operate.KeyBacklog) error {
	if len(keys) == 0 {
		fmt.Fprintln(p.out, "no message is deferred")
		return nil
	}
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "QUEUE\tORDERING KEY\tMESSAGES\tOLDEST\tFIRST\tREASON\tATTEMPTS\tERROR")
	for _, k := range keys {
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%d\t%s\t%d\t%s\n", orDash(k.Queue), foreign(k.OrderingKey), k.Messages, moment(k.Oldest),
			k.MessageID, k.Reason, k.Attempts, foreign(k.LastError))
	}
	return table.Flush()
}
