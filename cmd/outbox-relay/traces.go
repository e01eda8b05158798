package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/tracing"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
)

// mostFlush is how long a stop waits for the collector at most. One that is there
// takes what is left within a fraction of it.
const mostFlush = 5 * time.Second

// sendTraces sends a span for each request, if the environment asks for traces. The
// stop of it sends what is left, in what the drain left of its time: the relay has
// given the slot back by then, so nobody else waits.
func sendTraces(ctx context.Context, cfg *config.Config, publisher *infrai.Publisher, log *zap.Logger) (traces *tracing.Tracing, stop func()) {
	service := tracing.Service{Name: "outbox-relay", Version: cfg.Relay.Version, Instance: cfg.Relay.Holder}
	traces = tracing.Start(ctx, cfg.Traces, service, log)
	if traces == nil {
		return nil, func() {}
	}
	publisher.Trace(traces.Provider())
	draining, end := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(cfg.Relay.DrainTimeout, end) })
	return traces, func() {
		defer end()
		flushing, cancel := context.WithTimeout(draining, mostFlush)
		defer cancel()
		traces.Stop(flushing)
	}
}
