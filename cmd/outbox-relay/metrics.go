package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/metrics"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

// newMetrics returns the metrics of what is running.
func newMetrics(cfg *config.Config, running parts, log *zap.Logger) *metrics.Metrics {
	program := currentVersion()
	options := metrics.Options{
		Relay:   running.relay,
		Ready:   func(s *relay.State) bool { return admin.Ready(&cfg.Admin, s, nil).OK },
		Live:    func(s *relay.State) bool { return admin.Live(&cfg.Admin, s).OK },
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return connect(ctx, cfg) },
		Examine: func(ctx context.Context) *doctor.Report {
			visit := doctorConfig(cfg)
			visit.LeaveSlot, visit.LeaveQueue = true, true
			return doctor.Run(ctx, visit)
		},
		Verified: running.checker.Last,
		Lost:     running.traces.Lost,
		Schema:   cfg.Schema,
		Slot:     cfg.CDC.Slot,
		Build:    metrics.Build{Version: program.Version, Revision: program.Revision, Go: program.Go},
	}
	if stream, ok := running.source.(*cdc.Source); ok {
		options.Stream = stream.Stats
	}
	return metrics.New(options, log)
}
