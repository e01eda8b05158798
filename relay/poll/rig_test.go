package poll_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/poll"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

var _ relay.Source = (*poll.Source)(nil)

const waitLimit = time.Minute

// rig is a database with the outbox.
type rig struct {
	t      *testing.T
	url    string
	conn   *pgx.Conn
	config poll.Config
	logs   *observer.ObservedLogs
	log    *zap.Logger
}

func newRig(t *testing.T) *rig { return rigOn(t, pgtest.Migrated(t)) }

func rigOn(t *testing.T, url string) *rig {
	core, logs := observer.New(zapcore.DebugLevel)
	r := &rig{t: t, url: url, logs: logs, log: zap.New(core)}
	r.conn = r.connect()
	r.config = poll.Config{
		Schema: "outbox", Slot: "slot_" + r.conn.Config().Database,
		ConnectTimeout: 10 * time.Second, StandbyInterval: 50 * time.Millisecond,
		RetryMin: 10 * time.Millisecond, RetryMax: 100 * time.Millisecond, OperatorRetry: 100 * time.Millisecond,
		Interval: 5 * time.Millisecond, LeaseTimeout: 15 * time.Second, Patience: 10 * time.Second,
	}
	return r
}

func (r *rig) connect() *pgx.Conn {
	r.t.Helper()
	conn, err := pgx.Connect(context.Background(), r.url)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	r.execOn(r.conn, sql, args...)
}

func (r *rig) execOn(conn *pgx.Conn, sql string, args ...any) {
	r.t.Helper()
	if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

func (r *rig) count(sql string, args ...any) (n int64) {
	r.t.Helper()
	if err := r.conn.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// insert writes a message; without an ordering key if that is empty.
func (r *rig) insert(conn *pgx.Conn, key, orderingKey string) {
	r.t.Helper()
	r.execOn(conn, `insert into outbox.messages (key, queue, ordering_key, payload) values ($1, 'orders', nullif($2, ''), '{}')`, key, orderingKey)
}

func parse(t *testing.T, url string) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func (r *rig) source() *poll.Source { return r.sourceTo(r.url, r.url) }

// sourceTo is a source whose two connections have URLs of their own.
func (r *rig) sourceTo(database, direct string) *poll.Source {
	r.t.Helper()
	s := poll.New(r.config, parse(r.t, database), parse(r.t, direct), r.log)
	r.t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// open opens a source.
func (r *rig) open(s *poll.Source) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), waitLimit)
	defer cancel()
	if err := s.Open(ctx); err != nil {
		r.t.Fatalf("open: %v", err)
	}
}

func (r *rig) close(s *poll.Source) {
	r.t.Helper()
	if err := s.Close(context.Background()); err != nil {
		r.t.Errorf("close: %v", err)
	}
}

// reading is a session with what it has handed over.
type reading struct {
	*rig
	source *poll.Source
	next   uint64
	rows   []outbox.Row
}

func (r *rig) read() *reading {
	r.t.Helper()
	s := r.source()
	r.open(s)
	return &reading{rig: r, source: s}
}

// await reads until n messages were handed over, and returns their keys.
func (r *reading) await(n int) []string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), waitLimit)
	defer cancel()
	for len(r.rows) < n {
		rows, err := r.source.Next(ctx)
		if err != nil {
			r.t.Fatalf("next, after %d of %d messages: %v", len(r.rows), n, err)
		}
		r.rows = append(r.rows, rows...)
	}
	return r.keys()
}

func (r *reading) keys() []string {
	keys := make([]string, len(r.rows))
	for i := range r.rows {
		keys[i] = r.rows[i].Key
	}
	return keys
}

// silent checks that nothing comes for a few looks.
func (r *reading) silent() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*r.config.Interval)
	defer cancel()
	if rows, err := r.source.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		r.t.Fatalf("got %v, %v; want nothing", rows, err)
	}
}

// mark makes outcomes durable for everything that was handed over, and tells the
// source.
func (r *reading) mark() {
	r.t.Helper()
	ids := make([]int64, 0, len(r.rows))
	for i := range r.rows {
		ids = append(ids, r.rows[i].ID)
	}
	r.exec(`insert into outbox.dispatched (message_id, attempts) select unnest($1::bigint[]), 1 on conflict do nothing`, ids)
	var numbers []uint64
	for ; r.next < uint64(len(r.rows)); r.next++ {
		numbers = append(numbers, r.next)
	}
	r.source.Resolve(numbers)
}

func (r *rig) awaitLog(text string) observer.LoggedEntry {
	r.t.Helper()
	var found observer.LoggedEntry
	pgtest.Eventually(r.t, waitLimit, func() error {
		lines := r.logs.FilterMessage(text).All()
		if len(lines) == 0 {
			return fmt.Errorf("no line %q in the log", text)
		}
		found = lines[0]
		return nil
	})
	return found
}

// refused opens a source that only a person can help, and returns the error and
// its hint.
func (r *rig) refused(s *poll.Source) (text, hint string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), waitLimit)
	defer cancel()
	err := s.Open(ctx)
	operator, ok := errors.AsType[*poll.OperatorError](err)
	if !ok {
		r.t.Fatalf("open: %v, want an OperatorError", err)
	}
	return operator.Error(), operator.Hint()
}

func wantText(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
}

func (r *rig) eventually(check func() error) {
	r.t.Helper()
	pgtest.Eventually(r.t, waitLimit, check)
}
