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
	url := pgtest.Migrated(t)
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
	url := pgtest.Migrated(t)
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
	config, err := pgx.ParseConfig(pgtest.Migrated(t))
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

func TestEnqueueSQL(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := pgtest.Migrated(t)
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
	conn := connect(t, pgtest.Migrated(t))
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
	conn := connect(t, pgtest.Migrated(t))
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

// Applications behind a connection pooler use other protocols than the default.
func TestEnqueue_InEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			url := pgtest.Migrated(t)
			config, err := pgx.ParseConfig(url)
			if err != nil {
				t.Fatal(err)
			}
			config.DefaultQueryExecMode = mode
			conn, err := pgx.ConnectConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(context.Background()) }()
			full := message(`a"b\c'd{,}`)
			full.OrderingKey, full.Priority, full.Delay, full.DeliverAt = `x"y\z,{}`, new(3), time.Minute, time.Now()
			full.Headers = map[string]string{`a"\`: `{b,"}`}
			second := full
			second.Key = "null"
			second.OrderingKey = "NULL"
			tx := begin(t, conn)
			if _, err := outbox.Enqueue(t.Context(), tx, full); err != nil {
				t.Error("one:", err)
			}
			if _, err := outbox.Enqueue(t.Context(), tx, second, message("plain")); err != nil {
				t.Error("many:", err)
			}
			commit(t, tx)
			if diff := cmp.Diff([]string{full.Key, "null", "plain"}, keys(t, url)); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnqueueSQL_WritesWhatEnqueueWrites(t *testing.T) {
	t.Parallel()
	var messages []outbox.Message
	for i, text := range []string{`"`, `\`, `{,}`, "NULL", " a\t\n", `\"`, "'", "\u00fc\U0001F600"} {
		m := message(fmt.Sprintf("key-%d", i))
		m.OrderingKey, m.Headers, m.Payload = text, map[string]string{text: text}, map[string]string{text: text}
		m.Priority, m.Delay, m.DeliverAt = new(i), time.Duration(i)*time.Second, time.Unix(int64(i), 0)
		messages = append(messages, m)
	}
	messages = append(messages, message("plain"))

	rows := func(enqueue func(url string) error) []string {
		t.Helper()
		url := pgtest.Migrated(t)
		if err := enqueue(url); err != nil {
			t.Fatal(err)
		}
		found, err := connect(t, url).Query(t.Context(), "select (to_jsonb(m) - 'created_at')::text from outbox.messages m order by id")
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(found, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return texts
	}
	viaPgx := rows(func(url string) error {
		return pgx.BeginFunc(t.Context(), connect(t, url), func(tx pgx.Tx) error {
			_, err := outbox.Enqueue(t.Context(), tx, messages...)
			return err
		})
	})
	viaSQL := rows(func(url string) error {
		tx, err := openSQL(t, url).BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		_, err = outbox.EnqueueSQL(t.Context(), tx, messages...)
		return errors.Join(err, tx.Commit())
	})
	if diff := cmp.Diff(viaPgx, viaSQL); diff != "" || len(viaPgx) != len(messages) {
		t.Errorf("%d rows (-pgx +database/sql):\n%s", len(viaPgx), diff)
	}
}
