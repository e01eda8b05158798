package main

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/verify"
	"github.com/outbox-relay/outbox-relay/relay"
)

// leading are the phases in which no other relay moves messages, as far as this
// one knows. A stream that breaks does not end a check.
var leading = []relay.Phase{relay.Active, relay.Careful, relay.Reconnecting}

// checkOutbox begins to check the outbox from time to time, while the relay moves
// messages, until ctx ends or stop is called.
func checkOutbox(ctx context.Context, cfg *config.Config, moving *relay.Relay, log *zap.Logger) (checker *verify.Checker, stop func()) {
	checker = verify.NewChecker(cfg.Verify, verify.Options{
		Schema: cfg.Schema, Slot: cfg.CDC.Slot,
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return connect(ctx, cfg) },
		Leads:   func() bool { return slices.Contains(leading, moving.State().Phase) },
	}, log)
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { checker.Run(ctx) })
	return checker, func() { cancel(); group.Wait() }
}
