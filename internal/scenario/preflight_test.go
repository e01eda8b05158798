package scenario_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/schema"
)

// refusedAtTheStart runs the relay, which ends by itself and says why, and the
// doctor, who says so too. Neither makes a slot.
func refusedAtTheStart(t *testing.T, w *scenario.World, env map[string]string, want ...string) {
	t.Helper()
	relay := relaybin.Run(t, env, "run")
	relay.AwaitExit(t, 14)
	doctor := relaybin.Run(t, env, "doctor")
	doctor.AwaitExit(t, 13)
	for what, text := range map[string]string{"run": relay.Log().Text(), "doctor": doctor.Stdout()} {
		for _, part := range want {
			if !strings.Contains(strings.ToLower(text), part) {
				t.Errorf("%s does not say %q: %s", what, part, text)
			}
		}
	}
	if n := w.Count(`select count(*) from pg_replication_slots`); n != 0 {
		t.Errorf("%d slots were made", n)
	}
}

// OPS-01: a server that writes no logical WAL.
func TestOPS01_NoLogicalWAL(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{"wal_level": "replica"}})
	w := scenario.On(t, cluster.Migrated(t))
	refusedAtTheStart(t, w, w.Env, "wal_level", "replica", "logical", "restart")
}

// OPS-03: a relay that could not write down what becomes of its messages sends none.
// It says which right is missing and how to give it, and starts once it is there.
func TestOPS03_OneRightIsMissing(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	role := asRole(t, w)
	w.Insert(scenario.Message{Key: "not-yet"})
	for _, right := range []string{"insert on outbox.dispatched", "delete on outbox.deferred", "insert on outbox.dead_letters"} {
		w.Exec("revoke " + right + " from " + role)
		r := relaybin.Run(t, w.Env, "run")
		r.AwaitExit(t, 14)
		verb, table, _ := strings.Cut(right, " on outbox.")
		for _, part := range []string{"lacks rights that the relay uses: " + verb + " on " + table, "grant " + verb + ` on \"outbox\".\"` + table} {
			if text := r.Log().Text(); !strings.Contains(text, part) {
				t.Errorf("the relay does not say %q: %s", part, text)
			}
		}
		w.Exec("grant " + right + " to " + role)
	}
	if sent := w.Queue.Journal().Entries(0, 0); len(sent) != 0 {
		t.Errorf("something was sent: %+v", sent)
	}
	process(t, w, nil)
	w.Settle()
}

// OPS-03: a role gets along with what `grants print` gives it and nothing else,
// with the publication and the slot made by somebody else; a missing right is
// named together with the way to give it.
func TestOPS03_Rights(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	w := scenario.On(t, cluster.Migrated(t))
	for _, sql := range []string{`create role login_only login`, `create role replicates login replication`} {
		w.Exec(sql)
	}
	as := func(role string) map[string]string {
		env := maps.Clone(w.Env)
		env["DATABASE_URL"] = strings.Replace(w.URL, "postgres@", role+"@", 1)
		return env
	}
	refusedAtTheStart(t, w, as("login_only"), "permission denied", "grant")
	refusedAtTheStart(t, w, as("replicates"), "permission denied", "grant")
	config := w.Conn.Config()
	refuse(t, cluster, w, "login_only")
	stream := maps.Clone(w.Env)
	stream["RELAY_REPLICATION_URL"] = as("login_only")["DATABASE_URL"]
	refusedAtTheStart(t, w, stream, "pg_hba.conf", "login_only", strings.ToLower(config.Database), "the word replication")

	var grants strings.Builder
	err := schema.Grants(&grants, schema.GrantsConfig{Schema: "outbox", Database: config.Database, Relay: relayRole})
	if err != nil {
		t.Fatal(err)
	}
	w.Exec(grants.String())
	w.Exec(`select pg_create_logical_replication_slot($1, 'pgoutput')`, w.Env["RELAY_SLOT"])
	w.Env = as(relayRole)
	relaybin.Run(t, w.Env, "doctor").AwaitExit(t, 0)
	w.Insert(scenario.Batch("m", 30, "a", "b", "")...)
	process(t, w, nil)
	w.Settle()

	// OPS-10: nor does it take a heartbeat, or a right for one, to let WAL go that
	// others write.
	for range 4 {
		w.Exec(`select pg_logical_emit_message(false, 'noise', repeat('x', 1000000))`)
	}
	w.AwaitSlot()
}

// refuse has pg_hba.conf reject a role, in its first line.
func refuse(t *testing.T, cluster *pgtest.Cluster, w *scenario.World, role string) {
	t.Helper()
	firstHBA(t, cluster, "host all "+role+" 127.0.0.1/32 reject")
	w.Exec(`select pg_reload_conf()`)
}
