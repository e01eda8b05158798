package scenario_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// occupy opens sessions of an application until the server lets no more in.
func occupy(t *testing.T, w *scenario.World) (leave func()) {
	t.Helper()
	address, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.User("app")
	var sessions []*pgx.Conn
	leave = func() {
		for _, conn := range sessions {
			_ = conn.Close(context.Background())
		}
	}
	t.Cleanup(leave)
	for {
		conn, err := pgx.Connect(t.Context(), address.String())
		if err != nil {
			if !strings.Contains(err.Error(), "53300") {
				t.Fatal(err)
			}
			return leave
		}
		sessions = append(sessions, conn)
	}
}

// takeWALSender opens a replication connection of somebody else.
func takeWALSender(t *testing.T, w *scenario.World) (leave func()) {
	t.Helper()
	config, err := pgconn.ParseConfig(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["replication"], config.RuntimeParams["application_name"] = "true", "nightly_backup"
	conn, err := pgconn.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	leave = func() { _ = conn.Close(context.Background()) }
	t.Cleanup(leave)
	return leave
}

// OPS-02: the server has no connection left, no walsender, no slot, one after
// the other. The relay says what is used up, how much there is of it and who has
// it, asks seldom, leaves nothing behind, and goes on once something is free.
func TestOPS02_NothingLeftOnTheServer(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{
		"max_connections": "16", "max_wal_senders": "1", "max_replication_slots": "1", "log_connections": "on",
	}})
	w := scenario.On(t, cluster.Migrated(t)).With(map[string]string{"RELAY_OPERATOR_RETRY": "2s", "RELAY_RECONNECT_MAX": "2s"})
	asRelay(t, cluster, w, "S3cret", "host all "+relayRole+" 127.0.0.1/32 trust")
	w.Exec(`create role app login`)
	w.Exec(`select pg_create_logical_replication_slot('somebody_elses', 'pgoutput')`)
	w.Insert(scenario.Batch("before", 20, "a", "")...)
	leave, stopBackup := occupy(t, w), takeWALSender(t, w)

	p := relaybin.Run(t, w.Env, "run")
	told(t, p, "53300", "raise max_connections")
	calm(t, cluster)
	leave()
	told(t, p, "1 of 1 walsenders (max_wal_senders)", "by nightly_backup", "raise max_wal_senders")
	calm(t, cluster)
	stopBackup()
	told(t, p, "1 of 1 slots (max_replication_slots)", "by somebody_elses", "raise max_replication_slots")
	calm(t, cluster)
	if n := w.Count(`select count(*) from pg_replication_slots`); n != 1 {
		t.Errorf("%d slots are there, want the one of somebody else", n)
	}
	w.Exec(`select pg_drop_replication_slot('somebody_elses')`)
	p.AwaitLog(t, "session began")
	w.Settle()

	// Nothing is left for a relay at work that has lost its connections.
	w.Exec(`alter role ` + relayRole + ` connection limit 0`)
	if n := terminateBackends(w, `backend_type = 'client backend'`); n == 0 {
		t.Fatal("the relay had no SQL connection")
	}
	w.Insert(scenario.Batch("between", 20, "a", "")...)
	told(t, p, "too many connections for role")
	calm(t, cluster)
	w.Exec(`alter role ` + relayRole + ` connection limit -1`)
	w.Settle()
	if n := w.Count(`select count(*) from pg_replication_slots`); n != 1 {
		t.Errorf("%d slots are there, want one", n)
	}
	terminate(t, p)
	p.AwaitExit(t, 0)
}

// told waits for a line of the log that holds all of these.
func told(t *testing.T, p *relaybin.Process, texts ...string) {
	t.Helper()
	pgtest.Eventually(t, scenario.Patience, func() error {
	lines:
		for _, line := range p.Log().Lines() {
			for _, text := range texts {
				if !strings.Contains(line.Text, text) {
					continue lines
				}
			}
			return nil
		}
		return fmt.Errorf("no line with %q:\n%s", texts, p.Log().Text())
	})
}

// calm looks for some seconds how often the server is asked for a connection. An
// attempt takes two, and the first few come quickly; a busy loop has hundreds.
func calm(t *testing.T, cluster *pgtest.Cluster) {
	t.Helper()
	const span = 2 * time.Second
	asked := func() int { return strings.Count(logText(t, cluster), "connection received") }
	before := asked()
	scenario.Throughout(t, span, func() error { return nil })
	if n := asked() - before; n > 10+4*int(span/time.Second) {
		t.Errorf("%d connections in %s", n, span)
	}
}
