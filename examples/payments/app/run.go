package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

// Run receives and books until ctx ends, and then finishes what is at work. Its
// settings are DATABASE_URL, LISTEN, STRIPE_WEBHOOK_SECRETS (while one replaces
// another, both, with a comma), INFRAI_BASE_URL and INFRAI_API_KEY.
//
// A small application has both halves in one process. They share nothing but the
// database, and may as well be two. What goes wrong with a delivery is in the log
// of package slog.
func Run(ctx context.Context, env func(string) string) error {
	db, err := pgxpool.New(ctx, env("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	secrets := consumer.Fixed(strings.Split(env("STRIPE_WEBHOOK_SECRETS"), ",")...)
	webhooks, err := Webhooks(db, secrets, consumer.ReceiverConfig{})
	if err != nil {
		return err
	}
	queue := consumer.Queue{
		BaseURL: env("INFRAI_BASE_URL"), Name: Bookings, APIKey: func() string { return env("INFRAI_API_KEY") },
	}
	books, err := Books(db, queue, consumer.LoopConfig{})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return books.Run(ctx) })
	group.Go(func() error { return serve(ctx, env("LISTEN"), webhooks) })
	return group.Wait()
}

// serve serves until ctx ends, and then waits for the deliveries at work.
func serve(ctx context.Context, address string, handler http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	slog.Info("listening", "address", listener.Addr().String())
	server := &http.Server{Handler: handler, ReadTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		stopped <- server.Shutdown(grace)
	})
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}
