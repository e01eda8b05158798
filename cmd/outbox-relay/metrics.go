package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/metrics"
	"github.com/outbox-relay/outbox-relay/internal/tracing"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

// newMetrics returns the metrics of a relay that reads from source.
func newMetrics(cfg *config.Config, moving *relay.Relay, source relay.Source, traces *tracing.Tracing, log *zap.Logger) *metrics.Metrics {
	program := currentVersion()
	options := metrics.Options{
		Relay:   moving,
		Ready:   func(s *relay.State) bool { return admin.Ready(&cfg.Admin, s).OK },
		Live:    func(s *relay.State) bool { return admin.Live(&cfg.Admin, s).OK },
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return connect(ctx, cfg) },
		Lost:    traces.Lost,
		Schema:  cfg.Schema,
		Slot:    cfg.CDC.Slot,
		Build:   metrics.Build{Version: program.Version, Revision: program.Revision, Go: program.Go},
	}
	if stream, ok := source.(*cdc.Source); ok {
		options.Stream = stream.Stats
	}
	return metrics.New(options, log)
}
