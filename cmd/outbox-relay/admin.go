package main

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/tracing"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

// serveAdmin starts the admin server, before anything can hang and until the relay
// has stopped: whoever asks gets an answer at every time. Messages move without
// it, so what befalls it later ends nothing else.
func serveAdmin(ctx context.Context, cfg *config.Config, moving *relay.Relay, source relay.Source, traces *tracing.Tracing, log *zap.Logger) (stop func(), err error) {
	if !cfg.Admin.Enabled() {
		return func() {}, nil
	}
	look := func(ctx context.Context) (any, error) { return readStatus(ctx, cfg) }
	server := admin.New(cfg.Admin, moving.State, look, log)
	metrics := newMetrics(cfg, moving, source, traces, log)
	server.Handle("GET /metrics", metrics.Handler())
	server.AddPage(desk(cfg, moving))
	if err := server.Listen(ctx); err != nil {
		return nil, &config.Error{Problems: []error{err}}
	}
	answering, end := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() { metrics.Run(answering) })
	group.Go(func() {
		if err := server.Run(answering); err != nil {
			log.Error("nobody can ask for the relay's health any more", zap.Error(err))
		}
	})
	return func() { end(); group.Wait() }, nil
}
