package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/internal/infraiadmin"
)

func newInfraiStats(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats QUEUE",
		Short: "Show how many messages a queue has",
		Long: "stats shows the numbers that the queue tells. Which ones these are is not documented: what it\n" +
			"does not tell is shown as -, and what this program does not know by the queue's own names.",
		Args: exactly("a queue"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := infraiadmin.CheckQueue(args[0]); err != nil {
			return &usageError{cmd.CommandPath(), err.Error()}
		}
		return p.askInfrai(cmd, func(ctx context.Context, c *infraiadmin.Client) error {
			stats, err := c.Stats(ctx, args[0])
			switch {
			case err != nil:
				return err
			case *asJSON:
				return p.printJSON(statsDocument{1, *stats})
			}
			return p.printStats(stats)
		})
	}
	return cmd
}

// statsDocument is the JSON of infrai stats.
type statsDocument struct {
	SchemaVersion int `json:"schema_version"`
	infraiadmin.Stats
}

func (p *program) printStats(s *infraiadmin.Stats) error {
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "queue\t%s\n", s.Queue)
	for _, row := range []struct {
		name  string
		count *int64
	}{{"ready", s.Ready}, {"delayed", s.Delayed}, {"in flight", s.InFlight}, {"dead letters", s.DeadLetter}} {
		fmt.Fprintf(table, "%s\t%s\n", row.name, countOrDash(row.count))
	}
	age := "-"
	if s.OldestReadyAge != nil {
		age = decimal(*s.OldestReadyAge) + " s"
	}
	fmt.Fprintf(table, "oldest ready\t%s\n", age)
	for _, name := range slices.Sorted(maps.Keys(s.Others)) {
		fmt.Fprintf(table, "%s\t%s\n", quoteOdd(name), unknownValue(s.Others[name]))
	}
	return table.Flush()
}

// unknownValue writes a value whose meaning the queue alone knows.
func unknownValue(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case float64:
		return decimal(v)
	}
	return quoteOdd(fmt.Sprint(v))
}

// decimal writes a number without an exponent.
func decimal(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

func countOrDash(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}
