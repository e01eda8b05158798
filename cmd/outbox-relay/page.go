package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/metrics"
	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
	"github.com/outbox-relay/outbox-relay/schema"
)

// desk is what the page for people works with. Each act has a connection of its
// own, as that of a verb has.
func desk(cfg *config.Config, moving *relay.Relay, figures *metrics.Metrics) admin.Desk {
	return admin.Desk{
		State: moving.State, Counts: moving.Counts, Seen: figures.Report,
		Operate: func(ctx context.Context, do func(context.Context, *operate.Operator) error) error {
			return withConnection(ctx, cfg, func(conn *pgx.Conn) error {
				if err := schema.Check(ctx, conn, cfg.Schema); err != nil {
					return err
				}
				return do(ctx, operate.New(conn, cfg.Schema))
			})
		},
		Examine: func(ctx context.Context) *doctor.Report {
			visit := doctorConfig(cfg)
			visit.LeaveSlot = true
			return doctor.Run(ctx, visit)
		},
	}
}
