package main

import (
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/plural"
	"github.com/outbox-relay/outbox-relay/internal/verify"
	"github.com/outbox-relay/outbox-relay/schema"
)

func newVerify(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove that every committed message has one outcome or is on its way",
		Long: "verify counts messages and outcomes, a range of numbers at a time, and names the messages that\n" +
			"have no outcome and will not get one, or two that exclude each other. What looks wrong is looked\n" +
			"at twice, so a busy relay gives no false alarm. It changes nothing, and nobody waits for it. It\n" +
			"exits with 16 if there is a fault; run it once a day.",
		Args: noArguments,
	}
	var c verify.Config
	flags := cmd.Flags()
	flags.Int64Var(&c.From, "from", 0, "only messages with this `id` or a higher one")
	flags.Int64Var(&c.To, "to", 0, "only messages with this `id` or a lower one")
	flags.DurationVar(&c.Since, "since", 0, "only messages that were written from about this `duration` ago on, such as 26h")
	flags.DurationVar(&c.Young, "young", 0, "a message without outcome is on its way up to this age (default 1m)")
	flags.DurationVar(&c.Wait, "wait", 0, "wait up to this long for the second look (default 30s)")
	flags.IntVar(&c.Batch, "batch", 0, "look at `n` messages at a time (default 10000)")
	flags.IntVar(&c.Examples, "limit", 0, "list up to `n` messages with a fault (default 20)")
	flags.BoolVar(&c.Ranges, "ranges", false, "also list the counts of each range of numbers")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if c.From < 0 || c.To < 0 || c.Since < 0 || c.Young < 0 || c.Wait < 0 || c.Batch < 0 || c.Examples < 0 {
			return &usageError{cmd.CommandPath(), "a number or duration is negative"}
		}
		cfg, err := p.load(ctx, config.Database)
		if err != nil {
			return err
		}
		c.Schema, c.Slot = cfg.Schema, cfg.CDC.Slot
		var report *verify.Report
		err = withConnection(ctx, cfg, func(conn *pgx.Conn) error {
			if err := schema.Check(ctx, conn, cfg.Schema); err != nil {
				return err
			}
			report, err = verify.Run(ctx, conn, c)
			return err
		})
		if err != nil {
			return err
		}
		if *asJSON {
			err = p.printJSON(report)
		} else {
			err = report.Print(p.out)
		}
		if err == nil && !report.OK {
			err = &verifyError{report}
		}
		return err
	}
	return cmd
}

// verifyError says that there are faults; the report says which.
type verifyError struct{ report *verify.Report }

func (e *verifyError) Error() string {
	n := int64(0)
	for _, count := range e.report.Faults {
		n += count
	}
	return fmt.Sprintf("verify found %s", plural.Of(n, "fault", "faults"))
}

// Hint says where to look.
func (e *verifyError) Hint() string {
	return "`outbox-relay explain ID` has the life of a message"
}
