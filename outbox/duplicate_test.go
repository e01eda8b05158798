package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// APP-04: a key that is there already is an error that leaves the transaction
// usable; nothing about the first row changes.
func TestEnqueue_DuplicateKeys(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := pgtest.Migrated(t)
	conn := connect(t, url)
	tx := begin(t, conn)
	if _, err := outbox.Enqueue(ctx, tx, message("old")); err != nil {
		t.Fatal(err)
	}
	commit(t, tx)

	tx = begin(t, conn)
	other := message("old")
	other.Queue = "invoices"
	ids, err := outbox.Enqueue(ctx, tx, message("new-1"), other, message("new-2"), message("new-1"))
	if !errors.Is(err, outbox.ErrDuplicateKey) {
		t.Fatalf("got %v, want ErrDuplicateKey", err)
	}
	if got, want := err.Error(), "enqueue 4 messages: key is in the outbox already: old, new-1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(ids) != 4 || ids[0] == 0 || ids[1] != 0 || ids[2] == 0 || ids[3] != 0 {
		t.Errorf("ids: %v", ids)
	}
	// Once more in the same transaction, alone.
	if ids, err := outbox.Enqueue(ctx, tx, message("new-2")); !errors.Is(err, outbox.ErrDuplicateKey) || ids[0] != 0 {
		t.Errorf("again: %v, %v", ids, err)
	}
	commit(t, tx)

	if diff := cmp.Diff([]string{"old", "new-1", "new-2"}, keys(t, url)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	var queue string
	if err := conn.QueryRow(ctx, "select queue from outbox.messages where key = 'old'").Scan(&queue); err != nil || queue != "orders" {
		t.Errorf("the first row's queue: %q, %v", queue, err)
	}

	// A key that was purged is free.
	exec(t, conn, "delete from outbox.messages where key = 'old'")
	tx = begin(t, conn)
	if _, err := outbox.Enqueue(ctx, tx, message("old")); err != nil {
		t.Error("after the purge:", err)
	}
	commit(t, tx)
}

func TestEnqueue_WaitsForAnOpenTransactionWithTheSameKey(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		end  func(pgx.Tx) error
		want error
	}{
		{"commit", func(tx pgx.Tx) error { return tx.Commit(context.Background()) }, outbox.ErrDuplicateKey},
		{"rollback", func(tx pgx.Tx) error { return tx.Rollback(context.Background()) }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			url := pgtest.Migrated(t)
			first, second := begin(t, connect(t, url)), begin(t, connect(t, url))
			if _, err := outbox.Enqueue(ctx, first, message("same")); err != nil {
				t.Fatal(err)
			}
			waiting := second.Conn().PgConn().PID()
			done := make(chan error, 1)
			go func() {
				_, err := outbox.Enqueue(ctx, second, message("same"))
				done <- err
			}()
			pgtest.Eventually(t, patience, func() error {
				var event string
				err := first.QueryRow(ctx, "select coalesce(wait_event_type, '') from pg_stat_activity where pid = $1", waiting).Scan(&event)
				if err == nil && event != "Lock" {
					err = fmt.Errorf("waits for %q", event)
				}
				return err
			})
			if err := test.end(first); err != nil {
				t.Fatal(err)
			}
			if err := <-done; !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			commit(t, second)
			if diff := cmp.Diff([]string{"same"}, keys(t, url)); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnqueue_DuplicateAfterTheSnapshotIsASerializationFailure(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := pgtest.Migrated(t)
	late, err := connect(t, url).BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Exec(ctx, "select 1 from outbox.messages"); err != nil {
		t.Fatal(err)
	}
	early := begin(t, connect(t, url))
	if _, err := outbox.Enqueue(ctx, early, message("same")); err != nil {
		t.Fatal(err)
	}
	commit(t, early)
	_, err = outbox.Enqueue(ctx, late, message("same"))
	if refused := new(pgconn.PgError); !errors.As(err, &refused) || refused.Code != "40001" {
		t.Errorf("got %v, want SQLSTATE 40001", err)
	}
}
