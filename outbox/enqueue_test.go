package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
)

func TestEnqueue_WritesEveryField(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	conn := connect(t, url)
	at := time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)
	full := outbox.Message{
		Key: "k<>&1", Queue: "orders", OrderingKey: "Grün \"7\"", Delay: 90 * time.Second, Priority: new(0), DeliverAt: at,
		Payload: json.RawMessage(`{"amount": 10.50, "big": 12345678901234567890.10, "text": "<&>\u00e9\n"}`),
		Headers: map[string]string{"traceparent": "00-ab", "x\"": "ü"},
	}
	tx := begin(t, conn)
	ids, err := outbox.Enqueue(t.Context(), tx, full, message("bare"))
	if err != nil {
		t.Fatal(err)
	}
	commit(t, tx)

	type row struct {
		ID                     int64
		Key, Queue             string
		OrderingKey            *string
		Payload                string
		Headers                *string
		DelaySeconds, Priority *int
		DeliverAt              *time.Time
	}
	rows, err := conn.Query(t.Context(), `select id, key, queue, ordering_key, payload::text, headers::text,
		delay_seconds, priority, deliver_at at time zone 'UTC' from outbox.messages order by id`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		t.Fatal(err)
	}
	want := []row{
		{
			ids[0], full.Key, "orders", &full.OrderingKey,
			`{"big": 12345678901234567890.10, "text": "<&>é\n", "amount": 10.50}`,
			new(`{"x\"": "ü", "traceparent": "00-ab"}`), new(90), new(0), &at,
		},
		{ids[1], "bare", "orders", nil, `{"n": 1}`, nil, nil, nil, nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestEnqueue_KeepsTheOrderOfTheCall(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	tx := begin(t, connect(t, url))
	var messages []outbox.Message
	var want []string
	for i := range 3000 {
		// Neither the keys' order nor the payloads' size is the order of the call.
		key := fmt.Sprintf("key-%d", (i*7919)%3000)
		want = append(want, key)
		messages = append(messages, message(key))
	}
	ids, err := outbox.Enqueue(t.Context(), tx, messages...)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, tx)
	if !slices.IsSorted(ids) {
		t.Error("the ids do not grow with the messages")
	}
	if diff := cmp.Diff(want, keys(t, url)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

// countQueries is a tracer that counts what goes to the server.
type countQueries struct{ queries atomic.Int32 }

func (c *countQueries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.queries.Add(1)
	return ctx
}
func (*countQueries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestEnqueue_ManyInOneStatement(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	var count countQueries
	config.Tracer = &count
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx := begin(t, conn)
	before := count.queries.Load()
	for call := range 3 {
		var messages []outbox.Message
		for i := range 50 {
			messages = append(messages, message(fmt.Sprintf("call-%d-%d", call, i)))
		}
		if _, err := outbox.Enqueue(t.Context(), tx, messages...); err != nil {
			t.Fatal(err)
		}
	}
	if got := count.queries.Load() - before; got != 3 {
		t.Errorf("3 calls made %d queries", got)
	}
	if _, err := outbox.Enqueue(t.Context(), tx); err != nil {
		t.Error("without messages:", err)
	}
	if got := count.queries.Load() - before; got != 3 {
		t.Error("a call without messages went to the server")
	}
}

// APP-01: rolled back work leaves nothing, whichever way it was rolled back.
func TestEnqueue_RollbacksAndSavepoints(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := migrated(t)
	conn := connect(t, url)
	enqueue := func(tx pgx.Tx, key string) {
		t.Helper()
		if _, err := outbox.Enqueue(ctx, tx, message(key)); err != nil {
			t.Fatal(err)
		}
	}

	tx := begin(t, conn)
	enqueue(tx, "rolled-back")
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}

	tx = begin(t, conn)
	enqueue(tx, "before-savepoint")
	for _, keep := range []bool{true, false} {
		savepoint, err := tx.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		enqueue(savepoint, fmt.Sprintf("in-savepoint-kept-%v", keep))
		if keep {
			err = savepoint.Commit(ctx)
		} else {
			err = savepoint.Rollback(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// The key of the savepoint that was rolled back is free again.
	enqueue(tx, "in-savepoint-kept-false")
	commit(t, tx)

	// A connection that is lost in mid-transaction.
	lost := connect(t, url)
	enqueue(begin(t, lost), "connection-lost")
	if err := lost.PgConn().Conn().Close(); err != nil {
		t.Fatal(err)
	}

	want := []string{"before-savepoint", "in-savepoint-kept-true", "in-savepoint-kept-false"}
	if diff := cmp.Diff(want, keys(t, url)); diff != "" {
		t.Errorf("committed keys (-want +got):\n%s", diff)
	}
}

// APP-04: a key that is there already is an error that leaves the transaction
// usable; nothing about the first row changes.
func TestEnqueue_DuplicateKeys(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := migrated(t)
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
			url := migrated(t)
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
			pgtest.Eventually(t, 10*time.Second, func() error {
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
	url := migrated(t)
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

func TestEnqueueSQL(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := migrated(t)
	db := openSQL(t, url)
	transaction := func(end func(*sql.Tx) error, messages ...outbox.Message) ([]int64, error) {
		t.Helper()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids, enqueueErr := outbox.EnqueueSQL(ctx, tx, messages...)
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
		return ids, enqueueErr
	}
	if _, err := transaction((*sql.Tx).Rollback, message("rolled-back")); err != nil {
		t.Fatal(err)
	}
	ids, err := transaction((*sql.Tx).Commit, message("one"), message("two"))
	if err != nil || len(ids) != 2 || ids[0] >= ids[1] {
		t.Errorf("got %v, %v", ids, err)
	}
	ids, err = transaction((*sql.Tx).Commit, message("two"), message("three"))
	if !errors.Is(err, outbox.ErrDuplicateKey) || ids[0] != 0 || ids[1] == 0 {
		t.Errorf("got %v, %v", ids, err)
	}
	if ids, err := transaction((*sql.Tx).Commit); ids != nil || err != nil {
		t.Errorf("without messages: %v, %v", ids, err)
	}
	var limit *outbox.LimitError
	if _, err := transaction((*sql.Tx).Commit, message("")); !errors.As(err, &limit) {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"one", "two", "three"}, keys(t, url)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestEnqueue_ServerErrorsKeepTheirCode(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := pgtest.Database(t)
	tx := begin(t, connect(t, url))
	_, err := outbox.Enqueue(ctx, tx, message("k"))
	if refused := new(pgconn.PgError); !errors.As(err, &refused) || refused.Code != "42P01" {
		t.Errorf("pgx: got %v, want SQLSTATE 42P01", err)
	}
	sqlTx, err := openSQL(t, url).BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = outbox.EnqueueSQL(ctx, sqlTx, message("k"))
	if refused := new(pgconn.PgError); !errors.As(err, &refused) || refused.Code != "42P01" {
		t.Errorf("database/sql: got %v, want SQLSTATE 42P01", err)
	}
	if err := sqlTx.Rollback(); err != nil {
		t.Error(err)
	}
}

// The rights that the package documentation names are enough, and the role can
// read nobody's payload.
func TestEnqueue_NeedsFewRights(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := connect(t, migrated(t))
	// Roles belong to the cluster; this one ends with the transaction.
	tx := begin(t, conn)
	for _, statement := range []string{
		"create role app_of_this_test",
		"grant usage on schema outbox to app_of_this_test",
		"grant insert (key, queue, ordering_key, payload, headers, delay_seconds, priority, deliver_at) on outbox.messages to app_of_this_test",
		"grant select (id, key) on outbox.messages to app_of_this_test",
		"set local role app_of_this_test",
	} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := outbox.Enqueue(ctx, tx, message("k")); err != nil {
		t.Error(err)
	}
	if _, err := outbox.Enqueue(ctx, tx, message("k")); !errors.Is(err, outbox.ErrDuplicateKey) {
		t.Error(err)
	}
	_, err := tx.Exec(ctx, "select payload from outbox.messages")
	if refused := new(pgconn.PgError); !errors.As(err, &refused) || refused.Code != "42501" {
		t.Errorf("reading a payload: %v", err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Error(err)
	}
}

func TestNew_AnotherSchema(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := connect(t, migrated(t))
	exec(t, conn, `alter schema outbox rename to "Sales ""1"""`)
	sales := outbox.New(`Sales "1"`)
	tx := begin(t, conn)
	if _, err := sales.Enqueue(ctx, tx, message("k")); err != nil {
		t.Fatal(err)
	}
	commit(t, tx)
	var n int
	if err := conn.QueryRow(ctx, `select count(*) from "Sales ""1""".messages`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d rows, %v", n, err)
	}
}
