package cdc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/internal/netfault"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay"
)

var _ relay.Source = (*cdc.Source)(nil)

// patience bounds everything that is only a matter of a moment. Several test
// binaries share a small machine, whose disk may stand still for seconds; nothing
// waits for it when all is well.
const patience = time.Minute

// ddl makes what a Source needs of the schema.
const ddl = `
	create schema outbox;
	create table outbox.messages (
		id bigint generated always as identity primary key,
		key text not null unique default gen_random_uuid()::text,
		queue text not null default 'mails',
		ordering_key text,
		payload jsonb not null default '{}',
		headers jsonb,
		delay_seconds integer,
		priority smallint,
		deliver_at timestamptz,
		created_at timestamptz not null default now());
	create table public.noise (filler text);
	create publication outbox_relay for table outbox.messages with (publish = 'insert')`

// rig is a database with an outbox, and an application's connection to it.
type rig struct {
	t      *testing.T
	url    string
	config cdc.Config
	sql    *pgx.Conn
	log    *zap.Logger
	lines  *observer.ObservedLogs
}

var slots atomic.Int64

// newRig is a rig on the shared cluster.
func newRig(t *testing.T) *rig {
	t.Helper()
	return rigOn(t, pgtest.Shared(t))
}

func rigOn(t *testing.T, cluster *pgtest.Cluster) *rig {
	t.Helper()
	core, lines := observer.New(zapcore.DebugLevel)
	r := &rig{
		t: t, url: cluster.Database(t), lines: lines, log: zap.New(core),
		config: fastConfig(fmt.Sprintf("relay_%d", slots.Add(1))),
	}
	r.sql = r.connect()
	r.exec(ddl)
	return r
}

// fastConfig has the defaults, only quicker. The timeouts that end a session are
// long: they must not fire because the machine is busy.
func fastConfig(slot string) cdc.Config {
	return cdc.Config{
		Schema: "outbox", Slot: slot, Publication: "outbox_relay", SlotLost: cdc.SlotLostRecreate,
		SlotTimeout: 5 * time.Second, ConnectTimeout: 10 * time.Second,
		StatusInterval: 200 * time.Millisecond, SilenceTimeout: 20 * time.Second, WALSenderTimeout: 20 * time.Second,
		LeaseInterval: 100 * time.Millisecond, CheckInterval: 300 * time.Millisecond, StandbyInterval: 50 * time.Millisecond,
		RetryMin: 20 * time.Millisecond, RetryMax: 300 * time.Millisecond,
		OperatorRetry: 300 * time.Millisecond, ShutdownPause: 300 * time.Millisecond,
	}
}

// connect opens a connection of the application.
func (r *rig) connect() *pgx.Conn {
	r.t.Helper()
	conn, err := pgx.Connect(r.t.Context(), r.url)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = conn.Close(ctx) // the server may be gone by now
	})
	return conn
}

// exec runs statements as the application.
func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.sql.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// atEnd runs statements when the test has ended.
func (r *rig) atEnd(sql string) {
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := r.sql.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			r.t.Errorf("%s: %v", sql, err)
		}
	})
}

// insert writes messages with these keys in one transaction.
func (r *rig) insert(keys ...string) {
	r.t.Helper()
	r.exec("insert into outbox.messages (key) select unnest($1::text[])", keys)
}

// value is the single value that a query returns.
func value[T any](r *rig, sql string, args ...any) T {
	r.t.Helper()
	var v T
	if err := r.sql.QueryRow(r.t.Context(), sql, args...).Scan(&v); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// version is the server's, such as 150018.
func (r *rig) version() int {
	r.t.Helper()
	return value[int](r, "select current_setting('server_version_num')::int")
}

// walEnd is the server's position.
func (r *rig) walEnd() string {
	return value[string](r, "select pg_current_wal_lsn()::text")
}

// confirmedPast reports whether the slot's confirmed flush is at the position
// or behind it.
func (r *rig) confirmedPast(position string) bool {
	r.t.Helper()
	return value[bool](r, "select confirmed_flush_lsn >= $1::pg_lsn from pg_replication_slots where slot_name = $2", position, r.config.Slot)
}

// holder is the pid of the walsender on the slot, 0 without one.
func (r *rig) holder() int {
	r.t.Helper()
	return value[int](r, "select coalesce((select active_pid from pg_replication_slots where slot_name = $1), 0)", r.config.Slot)
}

// awaitSent waits until the server has sent all that is committed now.
func (r *rig) awaitSent() {
	r.t.Helper()
	after := r.walEnd()
	r.eventually("the server has sent all", func() bool {
		return value[bool](r, "select coalesce((select sent_lsn >= $1::pg_lsn from pg_stat_replication where pid = $2), false)", after, r.holder())
	})
}

// awaitRead waits until the Source has read this many transactions to their end. A
// consumer may have the messages of one before its commit is read, and a session
// that ends in between does not confirm it.
func (r *rig) awaitRead(s *cdc.Source, transactions uint64) {
	r.t.Helper()
	r.eventually("the commits are read", func() bool { return s.Stats().Transactions >= transactions })
}

// opened waits for the end of an Open that goes on elsewhere.
func (r *rig) opened(result <-chan error) error {
	r.t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(patience):
		r.t.Fatal("Open has not come back")
		return nil
	}
}

// dropSlot drops the slot as an operator does, once nobody holds it.
func (r *rig) dropSlot() {
	r.t.Helper()
	r.eventually("the slot is free", func() bool { return r.holder() == 0 })
	r.exec("select pg_drop_replication_slot($1)", r.config.Slot)
}

// noise writes about a megabyte of WAL that is none of our business.
func (r *rig) noise() {
	r.t.Helper()
	r.exec("insert into public.noise select repeat('x', 1000) from generate_series(1, 1000)")
}

// eventually waits for a condition.
func (r *rig) eventually(what string, holds func() bool) {
	r.t.Helper()
	pgtest.Eventually(r.t, patience, func() error {
		if !holds() {
			return errors.New(what)
		}
		return nil
	})
}

// logged returns the lines with this message.
func (r *rig) logged(message string) []observer.LoggedEntry {
	return r.lines.FilterMessage(message).All()
}

// text is a line of the log as one string, with its fields.
func text(entry observer.LoggedEntry) string {
	return fmt.Sprint(entry.Level, " ", entry.Message, " ", entry.ContextMap())
}

// source makes a Source that is closed at the test's end.
func (r *rig) source(change ...func(*cdc.Config)) *cdc.Source {
	r.t.Helper()
	return r.sourceTo(r.url, r.url, change...)
}

// via makes a Source whose connections all lead through a proxy.
func (r *rig) via(p *netfault.Proxy, change ...func(*cdc.Config)) *cdc.Source {
	r.t.Helper()
	url := r.through(p)
	return r.sourceTo(url, url, change...)
}

func (r *rig) sourceTo(database, replication string, change ...func(*cdc.Config)) *cdc.Source {
	r.t.Helper()
	config := r.config
	for _, c := range change {
		c(&config)
	}
	if err := config.Validate(); err != nil {
		r.t.Fatal(err)
	}
	s := cdc.New(config, r.parse(database), r.parse(replication), r.log)
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = s.Close(ctx) // the server may be gone by now
	})
	return s
}

func (r *rig) parse(url string) *pgx.ConnConfig {
	r.t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		r.t.Fatal(err)
	}
	return config
}

// proxy is a proxy to the rig's server.
func (r *rig) proxy() *netfault.Proxy {
	r.t.Helper()
	config := r.parse(r.url)
	p, err := netfault.New(fmt.Sprintf("%s:%d", config.Host, config.Port))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = p.Close() })
	return p
}

// through is the rig's URL by way of a proxy.
func (r *rig) through(p *netfault.Proxy) string {
	return strings.Replace(r.url, fmt.Sprintf(":%d/", r.parse(r.url).Port), fmt.Sprintf(":%d/", p.Port()), 1)
}

// open opens a Source.
func (r *rig) open(s *cdc.Source) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if err := s.Open(ctx); err != nil {
		r.t.Fatalf("open: %v", err)
	}
}

// close closes a Source in good order.
func (r *rig) close(s *cdc.Source) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		r.t.Errorf("close: %v", err)
	}
}

// consumer takes messages from a session and resolves them at once, except for
// those that it is told to hold.
type consumer struct {
	t      *testing.T
	source *cdc.Source
	stop   context.CancelFunc
	ended  chan struct{} // closed when Next has returned an error, which is err
	err    error

	mu   sync.Mutex
	hold func(outbox.Row) bool // nil: nothing
	rows []outbox.Row
	held map[uint64]string
}

// consume starts a consumer on an open Source.
func (r *rig) consume(s *cdc.Source, hold func(outbox.Row) bool) *consumer {
	ctx, cancel := context.WithCancel(context.Background())
	c := &consumer{t: r.t, source: s, stop: cancel, ended: make(chan struct{}), hold: hold, held: map[uint64]string{}}
	go c.run(ctx)
	r.t.Cleanup(func() {
		cancel()
		<-c.ended
	})
	return c
}

func (c *consumer) run(ctx context.Context) {
	defer close(c.ended)
	for {
		rows, err := c.source.Next(ctx)
		if err != nil {
			c.err = err
			return
		}
		c.take(rows)
	}
}

func (c *consumer) take(rows []outbox.Row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var resolved []uint64
	for i, row := range rows {
		number := uint64(len(c.rows) + i)
		if c.hold != nil && c.hold(row) {
			c.held[number] = row.Key
			continue
		}
		resolved = append(resolved, number)
	}
	c.rows = append(c.rows, rows...)
	c.source.Resolve(resolved)
}

// release resolves what is held, and holds nothing from now on.
func (c *consumer) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var numbers []uint64
	for number := range c.held {
		numbers = append(numbers, number)
	}
	clear(c.held)
	c.hold = nil
	c.source.Resolve(numbers)
}

// keys are the keys of all messages so far.
func (c *consumer) keys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := make([]string, len(c.rows))
	for i, row := range c.rows {
		keys[i] = row.Key
	}
	return keys
}

// wants waits for exactly these keys in this order.
func (c *consumer) wants(keys ...string) {
	c.t.Helper()
	pgtest.Eventually(c.t, patience, func() error {
		if got := c.keys(); !slices.Equal(got, keys) {
			return fmt.Errorf("messages %.300q, want %.300q", got, keys)
		}
		return nil
	})
}

// has waits until a message with this key came.
func (c *consumer) has(key string) {
	c.t.Helper()
	pgtest.Eventually(c.t, patience, func() error {
		if got := c.keys(); !slices.Contains(got, key) {
			return fmt.Errorf("%d messages, want one with key %q", len(got), key)
		}
		return nil
	})
}

// count waits for this many messages.
func (c *consumer) count(n int) {
	c.t.Helper()
	pgtest.Eventually(c.t, 2*patience, func() error {
		if got := len(c.keys()); got != n {
			return fmt.Errorf("%d messages, want %d", got, n)
		}
		return nil
	})
}

// fails waits for the session's end and returns its error.
func (c *consumer) fails() error {
	c.t.Helper()
	select {
	case <-c.ended:
		return c.err
	case <-time.After(patience):
		c.t.Fatal("the session goes on")
		return nil
	}
}

// ends waits for the session's end, whatever its error.
func (c *consumer) ends() { _ = c.fails() }

// numbered are keys with numbers from first to last.
func numbered(prefix string, first, last int) []string {
	var keys []string
	for i := first; i <= last; i++ {
		keys = append(keys, fmt.Sprintf("%s-%d", prefix, i))
	}
	return keys
}

// everything holds every message.
func everything(outbox.Row) bool { return true }
