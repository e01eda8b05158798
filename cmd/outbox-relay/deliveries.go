package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/internal/infraiadmin"
	"github.com/outbox-relay/outbox-relay/internal/plural"
)

func newInfraiDeliveries(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deliveries ID",
		Short: "Show the deliveries of a webhook",
		Long: "deliveries shows the history of the webhook with this id, or the delivery with this id: which\n" +
			"one the id names depends on the service. Payloads are never shown.",
		Args: exactly("the id of a webhook or a delivery"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := infraiadmin.CheckID(args[0]); err != nil {
			return &usageError{cmd.CommandPath(), err.Error()}
		}
		return p.askInfrai(cmd, func(ctx context.Context, c *infraiadmin.Client) error {
			deliveries, err := c.Deliveries(ctx, args[0])
			switch {
			case err != nil:
				return err
			case *asJSON:
				return p.printJSON(deliveriesDocument{1, args[0], deliveries})
			}
			return p.printDeliveries(deliveries)
		})
	}
	return cmd
}

// deliveriesDocument is the JSON of infrai deliveries.
type deliveriesDocument struct {
	SchemaVersion int                    `json:"schema_version"`
	ID            string                 `json:"id"`
	Deliveries    []infraiadmin.Delivery `json:"deliveries"`
}

func (p *program) printDeliveries(deliveries []infraiadmin.Delivery) error {
	fmt.Fprintln(p.out, plural.Of(len(deliveries), "delivery", "deliveries"))
	if len(deliveries) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tAT\tEVENT\tSTATUS\tANSWER\tATTEMPTS\tALSO TOLD")
	for _, d := range deliveries {
		others := make([]string, len(d.Others))
		for i, name := range d.Others {
			others[i] = quoteOdd(name)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", told(d.ID), told(d.At), told(d.Event), told(d.Status),
			told(d.DestinationStatus), told(d.Attempts), orDash(strings.Join(others, ", ")))
	}
	return table.Flush()
}
