package main

import (
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/schema"
)

func newStatus(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how the relay is doing",
		Long: "status reads from Postgres who holds the slot, how much WAL it keeps, and how many messages\n" +
			"have no outcome, are deferred or are dead letters. It works whether a relay runs or not.",
		Args: noArguments,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		cfg, err := p.load(ctx, config.Database)
		if err != nil {
			return err
		}
		var report *status.Report
		err = withConnection(ctx, cfg, func(conn *pgx.Conn) error {
			if err := schema.Check(ctx, conn, cfg.Schema); err != nil {
				return err
			}
			report, err = status.Read(ctx, conn, cfg.Schema, cfg.CDC.Slot)
			return err
		})
		switch {
		case err != nil:
			return err
		case *asJSON:
			return p.printJSON(report)
		}
		return report.Print(p.out)
	}
	return cmd
}
