package main

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/tracing"
	"github.com/outbox-relay/outbox-relay/internal/verify"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
)

// parts are what a running program is made of.
type parts struct {
	relay     *relay.Relay
	source    relay.Source
	publisher *infrai.Publisher
	traces    *tracing.Tracing
	checker   *verify.Checker
}

// serveAdmin starts the admin server, before anything can hang and until the relay
// has stopped: whoever asks gets an answer at every time. Messages move without
// it, so what befalls it later ends nothing else.
func serveAdmin(ctx context.Context, cfg *config.Config, running parts, log *zap.Logger) (stop func(), err error) {
	if !cfg.Admin.Enabled() {
		return func() {}, nil
	}
	look := func(ctx context.Context) (*admin.Look, error) { return takeLook(ctx, cfg, running.relay.State) }
	server := admin.New(cfg.Admin, running.relay.State, look, log)
	metrics := newMetrics(cfg, running, log)
	server.Handle("GET /metrics", metrics.Handler())
	server.Reads(metrics.Report)
	server.Warn(func() []admin.Finding {
		text, hint := metrics.SlotDanger()
		if text == "" {
			return nil
		}
		return []admin.Finding{{Code: "slot", Text: text, Hint: hint}}
	})
	server.AddPage(desk(cfg, running.relay, running.publisher))
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
