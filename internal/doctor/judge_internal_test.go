package doctor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// says checks a finding: its status and a text that it must name.
func says(t *testing.T, f finding, status Status, text string) {
	t.Helper()
	if f.status != status || !strings.Contains(f.observed+f.message, text) {
		t.Errorf("is %+v, want %s with %q", f, status, text)
	}
	if status != Pass && (f.message == "" || f.remedy == "" || f.observed == "") {
		t.Errorf("a fault without message, remedy or observed: %+v", f)
	}
}

func TestEncryption(t *testing.T) {
	t.Parallel()
	for url, test := range map[string]struct {
		encrypted bool
		status    Status
		text      string
	}{
		"postgres://127.0.0.1/app?sslmode=disable":      {false, Pass, "this machine"},
		"postgres://[::1]/app?sslmode=disable":          {false, Pass, "this machine"},
		"postgres://localhost/app?sslmode=disable":      {false, Pass, "this machine"},
		"postgres:///app?host=/run/postgresql":          {false, Pass, "this machine"},
		"postgres://db.example/app?sslmode=disable":     {false, Warn, "unprotected"},
		"postgres://db.example/app?sslmode=prefer":      {false, Warn, "no TLS to db.example"},
		"postgres://db.example/app?sslmode=require":     {true, Warn, "not verified"},
		"postgres://db.example/app?sslmode=verify-full": {true, Pass, "verified"},
		"postgres://db.example/app?sslmode=verify-ca":   {true, Pass, "verified"},
	} {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		says(t, encrypts(config, test.encrypted), test.status, test.text)
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	asked := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		ahead, took time.Duration
		status      Status
	}{
		{0, 0, Pass},
		{time.Second, 0, Pass},
		{1100 * time.Millisecond, 0, Warn},
		{-1100 * time.Millisecond, 0, Warn},
		{1500 * time.Millisecond, time.Second, Pass}, // 1 s ahead of the middle, or less
		{5 * time.Second, time.Second, Warn},
	} {
		says(t, skew(asked.Add(test.ahead), asked, asked.Add(test.took)), test.status, "ahead by")
	}
}

func TestSlotRisk(t *testing.T) {
	t.Parallel()
	p := &patient{slot: &slot{}}
	for state, want := range map[string]Status{"reserved": Pass, "extended": Warn, "unreserved": Fail} {
		p.slot.walStatus = state
		f := p.risk(limits{keep: gibibyte, walSize: gibibyte})
		says(t, f, want, state)
		if want != Pass && !strings.Contains(f.sql.String(), "'10240MB'") {
			t.Errorf("%s: mends it with %q", state, f.sql)
		}
	}
	p.vendor, p.slot.walStatus = vendors[0], "extended"
	if f := p.risk(limits{keep: gibibyte}); len(f.sql) > 0 || !strings.Contains(f.remedy, "as a parameter of Amazon RDS") {
		t.Errorf("a service takes no %q: %s", f.sql, f.remedy)
	}
}

func TestKeptWAL(t *testing.T) {
	t.Parallel()
	p := &patient{}
	for _, test := range []struct {
		kept, limit int64
		status      Status
	}{
		{gibibyte, -1, Pass},
		{gibibyte + 1, -1, Warn},
		{20 * mebibyte, 40 * mebibyte, Pass},
		{21 * mebibyte, 40 * mebibyte, Warn},
		{2 * gibibyte, 40 * gibibyte, Warn},
	} {
		says(t, p.keeps(test.kept, limits{keep: test.limit}), test.status, size(test.kept))
	}
}

func TestWraparound(t *testing.T) {
	t.Parallel()
	says(t, numbersLeft("app", oldNumber), Pass, `"app"`)
	says(t, numbersLeft("app", oldNumber+1), Warn, `"app"`)
}

// onServer is a patient that counts everything as long and old.
func onServer(t *testing.T) (*patient, *pgx.Conn) {
	t.Helper()
	url := pgtest.New(t).URL("postgres") // others would be in the way on a shared one
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	return &patient{conn: connect()}, connect()
}

func exec(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

func TestD33_D34_WhatHoldsTheServerBack(t *testing.T) {
	t.Parallel()
	p, other := onServer(t)
	name := `It's "` + p.conn.Config().Database + `"`
	exec(t, other, "set application_name = 'the report'", "create table a ()")
	exec(t, other, "begin", "create table b ()")
	f, err := longWriters(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	says(t, f, Warn, "the report, idle in transaction, open for")
	exec(t, other, "prepare transaction "+literal(name))
	t.Cleanup(func() {
		if _, err := other.Exec(context.Background(), "rollback prepared "+literal(name)); err != nil {
			t.Error(err)
		}
	})
	exec(t, p.conn, "create table c ()", "create table d ()")
	if f, err = longWriters(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	says(t, f, Warn, "prepared transaction "+literal(name))
	if f, err = vacuumHolders(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	says(t, f, Warn, "prepared transaction "+literal(name))
	exec(t, other, "set application_name = 'the dump'", "begin isolation level repeatable read", "select 1")
	if f, err = vacuumHolders(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	says(t, f, Warn, "the dump, idle in transaction, open for")
	who, err := p.heldBack(t.Context())
	if err != nil || !strings.Contains(who, "holds it back") {
		t.Errorf("vacuum is held back by %q (%v)", who, err)
	}
	exec(t, other, "rollback")
	p.long, p.many = longTransaction, manyTransactions
	for _, check := range []func(context.Context, *patient) (finding, error){longWriters, vacuumHolders, wraparound} {
		if f, err = check(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		says(t, f, Pass, "")
	}
}

// A transaction is named whatever its age while a relay waits for its lock, also by
// a look that begins between two attempts.
func TestD33_ARelayWaits(t *testing.T) {
	t.Parallel()
	p, other := onServer(t)
	p.long = longTransaction
	exec(t, p.conn, "create table noted ()")
	relay, err := pgx.Connect(t.Context(), p.conn.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = relay.Close(context.Background()) })
	exec(t, relay, "set application_name = 'outbox-relay ours'", "set lock_timeout = '3s'")
	exec(t, other, "set application_name = 'the report'", "begin", "lock table noted")
	f, err := longWriters(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	says(t, f, Pass, "none") // it has a lock, and nobody waits

	pgtest.Eventually(t, time.Minute, func() error { // the attempt may come too late for a look
		if f = whileItTries(t, p, relay); f.status != Warn {
			return fmt.Errorf("is %+v", f)
		}
		return nil
	})
	pid := other.PgConn().PID()
	says(t, f, Warn, fmt.Sprintf("pid %d of postgres, the report, idle in transaction, open for", pid))
	if end := fmt.Sprintf("select pg_terminate_backend(%d)", pid); !strings.Contains(f.sql.String(), end) || f.safe {
		t.Errorf("is mended by %q, safe %v", f.sql, f.safe)
	}
	exec(t, p.conn, f.sql...)
	exec(t, relay, "set lock_timeout = '1min'", "insert into noted default values") // once that session has ended
	if f, err = longWriters(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	says(t, f, Pass, "none")
}

// whileItTries looks, and has a relay try to get its lock once the look has begun:
// at first nobody waits.
func whileItTries(t *testing.T, p *patient, relay *pgx.Conn) finding {
	t.Helper()
	looked, tried := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(tried)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for begun := false; !begun; {
			select {
			case <-ticker.C:
			case <-looked:
				return
			}
			err := relay.QueryRow(context.Background(), "select query ~ 'virtualtransaction' from pg_stat_activity where pid = $1", p.conn.PgConn().PID()).Scan(&begun)
			if err != nil {
				t.Errorf("see whether the look has begun: %v", err)
				return
			}
		}
		_, _ = relay.Exec(context.Background(), "insert into noted default values") // the timeout is what it is for
	}()
	f, err := longWriters(t.Context(), p)
	close(looked)
	<-tried
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Who keeps the WAL of a slot decides what to do: a relay that is gone, one that
// waits, or a transaction that nobody has ended.
func TestKeeper(t *testing.T) {
	t.Parallel()
	p, other := onServer(t)
	p.slot, p.cfg.Slot = &slot{}, "ours"
	keeps := func(why, remedy, sql string) {
		t.Helper()
		k, err := p.keeper(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(k.why, why) || !strings.Contains(k.remedy, remedy) || !strings.Contains(k.sql.String(), sql) {
			t.Errorf("is %+v, want %q, %q and %q", k, why, remedy, sql)
		}
	}
	exec(t, p.conn, "select pg_create_logical_replication_slot("+literal(p.cfg.Slot)+", 'pgoutput')")
	keeps("nobody reads it", "start the relay", "")

	p.slot.active = true
	exec(t, other, "set application_name = 'the report'", "create table a ()", "begin", "create table b ()")
	exec(t, p.conn, "select pg_logical_emit_message(true, '', repeat('x', 1000000))") // its commit is flushed
	keeps("has not confirmed", "what the relay waits for", "")

	exec(t, p.conn, "select pg_replication_slot_advance("+literal(p.cfg.Slot)+", pg_current_wal_lsn())")
	keeps("a transaction that is open: ", "A restart of the relay", "select pg_terminate_backend(")
	exec(t, other, "prepare transaction 'of the report'")
	keeps("prepared transaction 'of the report' of ", "only its owner knows which is right", "")
	exec(t, other, "rollback prepared 'of the report'", "begin", "create table b ()")

	exec(t, p.conn, "create role relay replication", "set role relay")
	keeps("a transaction that is open", "as a role with pg_read_all_stats", "")
	exec(t, p.conn, "reset role")
}
