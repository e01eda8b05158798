package main

import (
	"context"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/schema"
)

func newAdopt(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Let the relay work on another cluster than before",
		Long: "adopt says that the server behind DATABASE_URL is the one that the relay belongs to from now on.\n" +
			"On another cluster than last time (a restore, a copy, an upgrade with pg_upgrade) and on an older\n" +
			"history of the same one (an old primary) the relay makes no slot and sends nothing until then: the\n" +
			"messages there may be copies of some that went out long ago.\n\n" +
			"Without --yes it shows both servers, how many messages would be sent to which queue, when they were\n" +
			"written, and how many of them after the last record of the relay, and changes nothing.",
		Args: noArguments,
	}
	yes := cmd.Flags().Bool("yes", false, "do it; without, it is only shown")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		cfg, err := p.load(ctx, config.Database)
		if err != nil {
			return err
		}
		return withConnection(ctx, cfg, func(conn *pgx.Conn) error {
			if err := schema.Check(ctx, conn, cfg.Schema); err != nil {
				return err
			}
			return p.adopt(ctx, operate.New(conn, cfg.Schema), cfg.CDC.Slot, *yes, *asJSON)
		})
	}
	return cmd
}

// adoption is the JSON of adopt.
type adoption struct {
	SchemaVersion int `json:"schema_version"`
	*operate.Adoption
	// Held says that the relay sends nothing here.
	Held bool `json:"held"`
	// Done says that the server was adopted by this call.
	Done bool `json:"done"`
}

func (p *program) adopt(ctx context.Context, o *operate.Operator, slot string, yes, asJSON bool) error {
	found, err := o.Adoption(ctx, slot)
	if err != nil {
		return err
	}
	// Also where the record fits: a running relay that has seen a later timeline
	// elsewhere knows more than the record of an old primary.
	done := yes && !found.Adopted
	if done {
		if err := o.Adopt(ctx, slot); err != nil {
			return err
		}
	}
	if asJSON {
		return p.printJSON(adoption{1, found, found.Held(), done})
	}
	return p.printAdoption(found, done)
}

func (p *program) printAdoption(a *operate.Adoption, done bool) error {
	known := "none on record"
	if a.KnownSystem != "" {
		known = fmt.Sprintf("system %s on timeline %d", a.KnownSystem, a.KnownTimeline)
	}
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "slot\t%s\n", a.Slot)
	fmt.Fprintf(table, "the relay was on\t%s\n", known)
	fmt.Fprintf(table, "this server\tsystem %s on timeline %d\n", a.System, a.Timeline)
	fmt.Fprintf(table, "would be sent\t%s without outcome, %s\n",
		counted(a.WithoutOutcome, "message", "messages"), counted(a.Deferred, "deferred message", "deferred messages"))
	if a.LastRecord != nil && !a.Adopted {
		fmt.Fprintf(table, "the relay's last record\t%s; %s written later\n", moment(*a.LastRecord),
			counted(a.AfterRecord, "of these messages was", "of these messages were"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if err := p.printUnsent(a); err != nil {
		return err
	}
	fmt.Fprintln(p.out, verdict(a, done))
	return nil
}

// printUnsent lists what would be sent by queue. To tell copies of what went out
// long ago from what the application has just written, one needs their age.
func (p *program) printUnsent(a *operate.Adoption) error {
	if len(a.Queues) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nQUEUE\tWITHOUT OUTCOME\tDEFERRED\tOLDEST WRITTEN\tNEWEST WRITTEN\tAFTER THE LAST RECORD")
	for i := range a.Queues {
		q := &a.Queues[i]
		after := "-"
		if a.LastRecord != nil && !a.Adopted {
			after = strconv.FormatInt(q.AfterRecord, 10)
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\t%s\n",
			quoteOdd(q.Queue), q.WithoutOutcome, q.Deferred, momentOr(q.Oldest), momentOr(q.Newest), after)
	}
	fmt.Fprintln(table)
	return table.Flush()
}

func momentOr(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return moment(*t)
}

// leftBehind is what one may forget after a move.
const leftBehind = "what waits on the server of before, and is not here, no relay sends: look there with status (docs/operations.md, \"What the old server still has\")"

// verdict is what follows for the relay.
func verdict(a *operate.Adoption, done bool) string {
	switch {
	case done && a.KnownSystem != "" && a.KnownSystem != a.System:
		return "adopted; a relay that waits goes on within seconds\n" + leftBehind
	case done:
		return "adopted; a relay that waits goes on within seconds"
	case a.Adopted:
		return "adopted already; the next relay takes it"
	case a.Held():
		return "the relay sends nothing here; nothing was changed, with --yes the server is adopted\n" +
			leftBehind
	}
	return "the record fits: there is nothing to adopt, unless a running relay says that it was on a later timeline"
}
