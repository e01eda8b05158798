package blocker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/blocker"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

func of(t *testing.T, conn *pgx.Conn, maker uint32) *blocker.Transaction {
	t.Helper()
	found, err := blocker.Of(t.Context(), conn, int(maker))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("lacks %q: %s", part, text)
		}
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t) // a slot is made here when nobody else writes
	looks := connect(t, cluster.URL("postgres"))
	if found := of(t, looks, 0); found != nil {
		t.Fatalf("on an idle server: %v", found)
	}
	exec(t, looks, "create database billing", "create role bob superuser login")
	owner := connect(t, strings.Replace(cluster.URL("billing"), "postgres@", "bob@", 1))
	exec(t, owner, "set application_name = 'the books'", "begin", "create table a ()")

	found := of(t, looks, 0)
	pid := int(owner.PgConn().PID())
	if found.PID != pid || found.Open() == "" || found.End() != fmt.Sprintf("select pg_terminate_backend(%d)", pid) {
		t.Errorf("found %+v", found)
	}
	contains(t, found.String(), fmt.Sprintf("pid %d (database billing, role bob, ", pid), "the books)")
	contains(t, found.Hint(), found.End(), "RELAY_MODE=poll")

	exec(t, owner, "prepare transaction 'it''s 4711'")
	found = of(t, looks, 0)
	if found.PID != 0 || found.End() != "" || found.Since == nil {
		t.Errorf("found %+v", found)
	}
	contains(t, found.String(), "prepared transaction 'it''s 4711' (database billing, role bob")
	contains(t, found.Hint(), "commit prepared 'it''s 4711'", "rollback prepared 'it''s 4711'", `of database "billing"`)

	exec(t, owner, "rollback prepared 'it''s 4711'")
	if found = of(t, looks, 0); found != nil {
		t.Errorf("in the end: %v", found)
	}
	contains(t, found.String(), "one that has just ended")
	if found.Hint()+found.Open()+found.End() != "" {
		t.Error("there is something to do about nothing")
	}
}

// Whom the maker of a slot waits for first is up to the server; it need not be the
// oldest. pg_blocking_pids is another witness: a prepared transaction is 0 there.
func TestOf_WhomTheMakerWaitsFor(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	var looks, owner, younger, maker *pgx.Conn
	for _, conn := range []**pgx.Conn{&looks, &owner, &younger, &maker} {
		*conn = connect(t, cluster.URL("postgres"))
	}
	exec(t, owner, "begin", "create table a ()", "prepare transaction 'older'")
	exec(t, younger, "begin", "create table b ()")
	pid := int(younger.PgConn().PID())
	ends := map[int]func(){
		0:   func() { exec(t, owner, "rollback prepared 'older'") },
		pid: func() { exec(t, younger, "rollback") },
	}

	made := make(chan error, 1)
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		_, err := maker.Exec(t.Context(), "select pg_create_logical_replication_slot('slot', 'pgoutput')")
		made <- err
	}()
	for len(ends) > 0 {
		var blocking int
		pgtest.Eventually(t, time.Minute, func() error {
			err := looks.QueryRow(t.Context(), "select b[1] from pg_blocking_pids($1) b where b <> '{}'", maker.PgConn().PID()).Scan(&blocking)
			if err == nil && ends[blocking] == nil {
				return fmt.Errorf("still waits for %d", blocking)
			}
			return err
		})
		found := of(t, looks, maker.PgConn().PID())
		if found == nil || found.PID != blocking || (found.GID == "older") != (blocking == 0) {
			t.Fatalf("the maker waits for %d, found %+v", blocking, found)
		}
		ends[blocking]()
		delete(ends, blocking)
	}
	if err := <-made; err != nil {
		t.Fatal(err)
	}
}
