package main

import (
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/explain"
	"github.com/outbox-relay/outbox-relay/schema"
)

func newExplain(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain ID|KEY",
		Short: "Tell the life of one message, and what happens next",
		Long: "explain says what became of a message, what it waits for, which relay is responsible, what\n" +
			"happens next, and which command changes that. It changes nothing. Payloads are shown with\n" +
			"--payload only. It exits with 15 if there is no such message, and says what that can mean.",
		Args: exactly("the id or the key of a message"),
	}
	var c explain.Config
	cmd.Flags().BoolVar(&c.Key, "key", false, "the argument is a key, also if it is a number")
	cmd.Flags().BoolVar(&c.Payload, "payload", false, "show payload and headers")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		cfg, err := p.load(ctx, config.Database)
		if err != nil {
			return err
		}
		c.Schema, c.Slot = cfg.Schema, cfg.CDC.Slot
		c.Retention, c.MaxAttempts = cfg.Relay.Retention, cfg.Relay.MaxAttempts
		var report *explain.Report
		err = withConnection(ctx, cfg, func(conn *pgx.Conn) error {
			if err := schema.Check(ctx, conn, cfg.Schema); err != nil {
				return err
			}
			report, err = explain.Read(ctx, conn, c, args[0])
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
		if err == nil {
			err = report.Err()
		}
		return err
	}
	return cmd
}
