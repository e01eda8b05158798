package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

// Receive receives webhooks until ctx ends, and then finishes those at work. Its
// settings are DATABASE_URL, LISTEN, and SHOPIFY_SECRETS_FILE with a secret in each
// line.
func Receive(ctx context.Context, env func(string) string) error {
	db, err := pgxpool.New(ctx, env("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	secrets := func() []string { return strings.Fields(read(env("SHOPIFY_SECRETS_FILE"))) }
	handler, err := Receiver(db, secrets, consumer.ReceiverConfig{})
	if err != nil {
		return err
	}
	return serve(ctx, env("LISTEN"), handler)
}

// Work fulfils orders until ctx ends, and then finishes those at work. Its settings
// are DATABASE_URL, INFRAI_BASE_URL, and INFRAI_API_KEY_FILE with the key.
func Work(ctx context.Context, env func(string) string, config consumer.LoopConfig) error {
	db, err := pgxpool.New(ctx, env("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	queue := consumer.Queue{
		BaseURL: env("INFRAI_BASE_URL"), Name: Orders,
		APIKey: func() string { return read(env("INFRAI_API_KEY_FILE")) },
	}
	worker, err := Worker(db, queue, config)
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

// read reads a secret each time that it is needed, so that it is rotated by putting
// another file in place. Without a file there is no secret, and nobody passes.
func read(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		slog.Error("secret", "error", err)
	}
	return string(text)
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
