package main

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
	"github.com/outbox-relay/outbox-relay/schema"
)

// serveAdmin starts the admin server, before anything can hang and until the relay
// has stopped: whoever asks gets an answer at every time. Messages move without
// it, so what befalls it later ends nothing else.
func serveAdmin(ctx context.Context, cfg *config.Config, moving *relay.Relay, log *zap.Logger) (stop func(), err error) {
	if !cfg.Admin.Enabled() {
		return func() {}, nil
	}
	look := func(ctx context.Context) (any, error) { return readStatus(ctx, cfg) }
	server := admin.New(cfg.Admin, moving.State, look, log)
	if err := server.Listen(ctx); err != nil {
		return nil, &config.Error{Problems: []error{err}}
	}
	answering, end := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() {
		if err := server.Run(answering); err != nil {
			log.Error("nobody can ask for the relay's health any more", zap.Error(err))
		}
	})
	return func() { end(); group.Wait() }, nil
}

// readStatus reads what the verb status shows.
func readStatus(ctx context.Context, cfg *config.Config) (report *status.Report, err error) {
	err = withConnection(ctx, cfg, func(conn *pgx.Conn) error {
		if err := schema.Check(ctx, conn, cfg.Schema); err != nil {
			return err
		}
		report, err = status.Read(ctx, conn, cfg.Schema, cfg.CDC.Slot)
		return err
	})
	return report, err
}
