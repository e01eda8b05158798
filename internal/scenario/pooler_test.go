package scenario_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// throughPooler sends the SQL of the relays to come through a pooler with one
// session of the server, and lets the stream go past it.
func throughPooler(t *testing.T, w *scenario.World, ignored ...string) {
	t.Helper()
	w.Env["RELAY_REPLICATION_URL"] = w.Env["DATABASE_URL"]
	w.Env["DATABASE_URL"] = pgtest.Pooler(t, w.URL, ignored...)
}

// another is a client of the same pooler that uses the session in between.
func another(t *testing.T, w *scenario.World) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(w.Env["DATABASE_URL"])
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// OPS-14: SQL goes through a pooler that hands out transactions, one that
// refuses settings of a connection and one that was told to ignore them. All
// that a relay writes gets there, and nothing stays in the session that it
// shares with others.
func TestOPS14_SQLThroughAPooler(t *testing.T) {
	t.Parallel()
	for name, ignored := range map[string][]string{
		"refuses settings": nil,
		"ignores settings": {"lock_timeout", "synchronous_commit", "search_path", "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan", "row_security", "max_parallel_workers_per_gather"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := brisk(scenario.New(t)).With(map[string]string{
				"RELAY_SWEEP_INTERVAL": "1s", "RELAY_MAX_ATTEMPTS": "100000", // one fails until it is mended
			})
			throughPooler(t, w, ignored...)
			w.Fault(emulator.Fault{Key: "refused", Status: http.StatusUnprocessableEntity})
			down := w.Fault(emulator.Fault{Key: "m-1", Status: http.StatusServiceUnavailable})
			w.Insert(scenario.Batch("before", 50, "a", "b", "")...)
			p := process(t, w, nil)
			p.AwaitLog(t, "connection pooler found, every transaction brings its own settings")
			neighbour := another(t, w)
			same := func() {
				t.Helper()
				var seqscan, path, commit string
				var prepared int
				err := neighbour.QueryRow(t.Context(), `select current_setting('enable_seqscan'), current_setting('search_path'),
					current_setting('synchronous_commit'), (select count(*) from pg_prepared_statements)`).Scan(&seqscan, &path, &commit, &prepared)
				if err != nil {
					t.Fatal(err)
				}
				if seqscan != "on" || path == "pg_catalog" || commit != "on" || prepared != 0 {
					t.Errorf("left in the session: enable_seqscan %s, search_path %s, synchronous_commit %s, %d prepared statements",
						seqscan, path, commit, prepared)
				}
			}

			for _, m := range scenario.Batch("m", 200, "a", "b", "c", "") {
				w.Insert(m)
				same()
			}
			w.Exec(`insert into outbox.messages (key, queue, payload) values ('refused', 'orders', '{}')`)
			w.Forget("refused")
			awaitDeferred(w, t, 1, "reason = 'transient'")
			w.Queue.RemoveFault(down)
			w.Settle()
			noneLeft(w, t)

			kill(t, p) // the next one finds marks, and what the writer could not
			process(t, w, nil)
			w.Insert(scenario.Batch("after", 50, "a", "b", "")...)
			w.Settle()
			same()
			if n := w.Count(`select count(*) from outbox.dead_letters where last_status = 422`); n != 1 {
				t.Errorf("%d dead letters, want 1", n)
			}
			status := relaybin.Run(t, w.Env, "migrate", "status")
			status.AwaitExit(t, 0)
			relaybin.Run(t, w.Env, "status").AwaitExit(t, 0)
		})
	}
}

// OPS-14, OPS-04: what needs the server itself says so behind a pooler.
func TestOPS14_WhatDoesNotGoThroughAPooler(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	w.Env["DATABASE_URL"] = pgtest.Pooler(t, w.URL)

	relay := relaybin.Run(t, w.Env, "run")
	relay.AwaitExit(t, 14)
	if text := relay.Log().Text(); !strings.Contains(text, "pooler") || !strings.Contains(text, "direct address") {
		t.Errorf("run says %s", text)
	}
	// One of its own: PgBouncer 1.18 may end itself when a client leaves that waits
	// for its first server, as those of a relay that stops at once do.
	w.Env["DATABASE_URL"] = pgtest.Pooler(t, w.URL)
	migration := relaybin.Run(t, w.Env, "migrate", "up")
	migration.AwaitExit(t, 1)
	if text := migration.Log().Text(); !strings.Contains(text, "pooler") || !strings.Contains(text, "direct address") {
		t.Errorf("migrate says %s", text)
	}
	if n := w.Count(`select count(*) from pg_replication_slots where database = current_database()`); n != 0 {
		t.Errorf("%d slots were made", n)
	}
}
