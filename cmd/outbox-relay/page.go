package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
	"github.com/outbox-relay/outbox-relay/schema"
)

// takeLook reads what the page and /status show of the database, all of it as it was
// at one moment, with what the relay had in memory just before.
func takeLook(ctx context.Context, cfg *config.Config, state func() relay.State) (look *admin.Look, err error) {
	err = withConnection(ctx, cfg, func(conn *pgx.Conn) error {
		if err := schema.Check(ctx, conn, cfg.Schema); err != nil {
			return err
		}
		return status.Snapshot(ctx, conn, func(tx pgx.Tx) error {
			before := state()
			report, err := status.ReadIn(ctx, tx, cfg.Schema, cfg.CDC.Slot)
			if err != nil {
				return err
			}
			report.Hear(&before)
			look = &admin.Look{Report: report}
			return look.Read(ctx, operate.New(tx, cfg.Schema))
		})
	})
	if look != nil {
		return look, nil // what else went wrong is in it
	}
	return nil, err
}

// desk is what the page for people works with. Each act has a connection of its
// own, as that of a verb has.
func desk(cfg *config.Config, moving *relay.Relay, publisher *infrai.Publisher) admin.Desk {
	return admin.Desk{
		State: moving.State, Counts: moving.Counts,
		Key: func() admin.Key {
			key := publisher.Key()
			return admin.Key{Service: publisher.URL(), File: key.File, Since: key.Since, Trouble: key.Trouble}
		},
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
