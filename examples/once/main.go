// Command once is the smallest application: it places orders, each with a message
// in the same transaction, and mails once for each order, however often its
// message is delivered.
//
//	once place 1041     places an order
//	once work           handles messages until it is stopped
//
// It needs DATABASE_URL with the outbox in it, a relay that runs, and
// INFRAI_BASE_URL and INFRAI_API_KEY of a queue named orders.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

const tables = `
create table if not exists orders (id text primary key);
create table if not exists mails (id bigint generated always as identity primary key, order_id text not null);
`

// placed is what consumers get. EventID is what they claim.
type placed struct {
	EventID string `json:"event_id"`
	Order   string `json:"order"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "once:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, env func(string) string, out io.Writer) error {
	pool, err := pgxpool.New(ctx, env("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, tables); err != nil {
		return err
	}
	switch {
	case len(args) == 2 && args[0] == "place":
		return place(ctx, pool, args[1], out)
	case len(args) == 1 && args[0] == "work":
		return work(ctx, pool, env, out)
	default:
		return errors.New("usage: once place ORDER | once work")
	}
}

// place writes the order and its message: both exist, or neither.
func place(ctx context.Context, pool *pgxpool.Pool, order string, out io.Writer) error {
	event := placed{EventID: "order-" + order + "-placed", Order: order}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into orders (id) values ($1)`, order); err != nil {
			return err
		}
		_, err := outbox.Enqueue(ctx, tx, outbox.Message{
			Key: event.EventID, Queue: "orders", OrderingKey: "order-" + order, Payload: event,
		})
		return err
	})
	if err == nil {
		fmt.Fprintln(out, "placed", order)
	}
	return err
}

// work handles what the queue delivers, until ctx ends.
func work(ctx context.Context, pool *pgxpool.Pool, env func(string) string, out io.Writer) error {
	mailer := &consumer.Consumer{Name: "mailer", DB: pool, Handler: mail}
	queue := consumer.Queue{
		BaseURL: env("INFRAI_BASE_URL"), Name: "orders", APIKey: func() string { return env("INFRAI_API_KEY") },
	}
	loop, err := consumer.NewLoop(mailer, queue, consumer.Plain(consumer.Field("event_id")), consumer.LoopConfig{
		Concurrency: 1, // so that out has one writer
		Report: func(r consumer.Report) {
			fmt.Fprintln(out, r.Outcome, r.Message.ID)
			if r.Err != nil {
				fmt.Fprintln(out, "  because:", r.Err)
			}
		},
		Trouble: func(err error) { fmt.Fprintln(os.Stderr, "once:", err) },
	})
	if err != nil {
		return err
	}
	return loop.Run(ctx)
}

// mail runs in the transaction that claims the event.
func mail(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
	var event placed
	if err := json.Unmarshal(m.Data, &event); err != nil {
		return consumer.Permanent(err)
	}
	_, err := tx.Exec(ctx, `insert into mails (order_id) values ($1)`, event.Order)
	return err
}
