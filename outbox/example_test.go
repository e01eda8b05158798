package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
)

type order struct {
	ID    int    `json:"id"`
	Total string `json:"total"`
}

// The message is written in the transaction that writes the order: both exist,
// or neither.
func ExampleEnqueue() {
	ctx := context.Background()
	conn, done := exampleConn()
	defer done()

	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// ... insert the order itself with tx ...
		_, err := outbox.Enqueue(ctx, tx, outbox.Message{
			Key: "order-1041-placed", Queue: "orders", OrderingKey: "order-1041",
			Payload: order{ID: 1041, Total: "10.50"},
		})
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}

// Many messages, also for different queues, are one round trip. They arrive in
// the order of the call where they share an ordering key.
func ExampleEnqueue_many() {
	ctx := context.Background()
	conn, done := exampleConn()
	defer done()

	var messages []outbox.Message
	for n := range 3 {
		messages = append(messages, outbox.Message{
			Key: fmt.Sprintf("order-1041-line-%d", n), Queue: "stock", OrderingKey: "order-1041",
			Payload: json.RawMessage(`{"sku": "cup", "quantity": 2}`),
		})
	}
	messages = append(messages, outbox.Message{
		Key: "order-1041-reminder", Queue: "mail", Payload: order{ID: 1041},
		DeliverAt: time.Date(2030, 1, 31, 9, 0, 0, 0, time.UTC), Priority: new(2),
	})
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		ids, err := outbox.Enqueue(ctx, tx, messages...)
		fmt.Println(len(ids), "messages")
		return err
	})
	fmt.Println(err)
	// Output:
	// 4 messages
	// <nil>
}

// With database/sql, and whatever is built on it.
func ExampleEnqueueSQL() {
	ctx := context.Background()
	db, done := exampleDB()
	defer done()

	place := func() error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after the commit
		// ... insert the order itself with tx ...
		if _, err := outbox.EnqueueSQL(ctx, tx, outbox.Message{
			Key: "order-1041-placed", Queue: "orders", Payload: order{ID: 1041},
		}); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(place())
	// Output: <nil>
}

// A caller that may run twice for the same event, such as a webhook receiver,
// takes the second time for a success.
func ExampleEnqueue_again() {
	ctx := context.Background()
	conn, done := exampleConn()
	defer done()

	receive := func(delivery string) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := outbox.Enqueue(ctx, tx, outbox.Message{
				Key: "hook-" + delivery, Queue: "hooks", Payload: map[string]string{"delivery": delivery},
			})
			if errors.Is(err, outbox.ErrDuplicateKey) {
				fmt.Println("seen before:", err)
				return nil
			}
			return err
		})
	}
	fmt.Println(receive("d-7"))
	fmt.Println(receive("d-7"))
	// Output:
	// <nil>
	// seen before: enqueue message: key is in the outbox already: hook-d-7
	// <nil>
}

// A message that breaks a limit is refused before the server hears of it, so
// the transaction is not lost.
func ExampleLimitError() {
	err := outbox.Message{Key: "order 1041", Queue: "orders", Payload: order{}}.Validate()
	if limit, ok := errors.AsType[*outbox.LimitError](err); ok {
		fmt.Println(limit.Field, "is", limit.Got)
	}
	fmt.Println(err)
	// Output:
	// key is "order 1041"
	// key must be 1 to 128 printable ASCII characters without spaces, got "order 1041"
}

// An outbox in a schema of another name.
func ExampleNew() {
	ctx := context.Background()
	conn, done := exampleConn()
	defer done()
	if _, err := conn.Exec(ctx, "alter schema outbox rename to sales_outbox"); err != nil {
		fmt.Println(err)
	}

	sales := outbox.New("sales_outbox")
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := sales.Enqueue(ctx, tx, outbox.Message{Key: "k", Queue: "orders", Payload: order{}})
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}

// exampleT gives examples what tests have: a database that ends with them.
type exampleT struct{ cleanups []func() }

func (t *exampleT) Helper()                        {}
func (t *exampleT) Cleanup(f func())               { t.cleanups = append(t.cleanups, f) }
func (t *exampleT) Logf(string, ...any)            {}
func (t *exampleT) Errorf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (t *exampleT) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (t *exampleT) Failed() bool                   { return false }

func (t *exampleT) done() {
	for _, cleanup := range slices.Backward(t.cleanups) {
		cleanup()
	}
}

func exampleConn() (*pgx.Conn, func()) {
	t := new(exampleT)
	return connect(t, pgtest.Migrated(t)), t.done
}

func exampleDB() (*sql.DB, func()) {
	t := new(exampleT)
	return openSQL(t, pgtest.Migrated(t)), t.done
}
