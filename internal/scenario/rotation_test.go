package scenario_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/schema"
)

// relayRole is the role of a relay with the rights that it needs and no others.
const relayRole = "outbox_relay"

// asRelay makes the role of a relay, for which the server wants the connections
// that the lines of pg_hba.conf describe, and has the relays to come use it.
func asRelay(t *testing.T, cluster *pgtest.Cluster, w *scenario.World, password string, hba ...string) {
	t.Helper()
	config := w.Conn.Config()
	var grants strings.Builder
	if err := schema.Grants(&grants, schema.GrantsConfig{Schema: "outbox", Database: config.Database, Relay: relayRole}); err != nil {
		t.Fatal(err)
	}
	w.Exec(grants.String())
	w.Exec(fmt.Sprintf("alter role %s login password '%s'", relayRole, password))

	firstHBA(t, cluster, hba...)
	w.Exec(`select pg_reload_conf()`)

	address, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.User(relayRole)
	w.Env["DATABASE_URL"] = address.String()
}

// firstHBA puts lines before those of pg_hba.conf: the first one that fits counts,
// and those of the rig trust everybody.
func firstHBA(t *testing.T, cluster *pgtest.Cluster, lines ...string) {
	t.Helper()
	file := filepath.Join(filepath.Dir(cluster.LogFile()), "data", "pg_hba.conf")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"+string(text)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// terminateBackends ends the relay's connections that fit a condition on
// pg_stat_activity, and returns how many there were.
func terminateBackends(w *scenario.World, condition string) int64 {
	return w.Count(`select count(pg_terminate_backend(pid)) from pg_stat_activity
		where usename = $1 and `+condition, relayRole)
}

// replace puts a file in the place of another at once, as mounted secrets are.
func replace(t *testing.T, file, content string) {
	t.Helper()
	next := file + ".next"
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
}

// OPS-12: the password of the role changes, and a little later the file that
// holds it. In between the stream goes on, nothing hammers at the server, and the
// log says whom it refuses; then new connections of both kinds use the new one,
// without a restart.
func TestOPS12_ThePasswordIsReplaced(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]struct {
		content func(password string) string
		use     func(w *scenario.World, file string)
	}{
		"a file": {
			content: func(password string) string { return password + "\n" },
			use:     func(w *scenario.World, file string) { w.Env["RELAY_DATABASE_PASSWORD_FILE"] = file },
		},
		"libpq's password file": {
			content: func(password string) string { return "*:*:*:" + relayRole + ":" + password + "\n" },
			use:     func(w *scenario.World, file string) { w.Env["DATABASE_URL"] += "&passfile=" + file },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := pgtest.New(t)
			w := scenario.On(t, cluster.Migrated(t)).With(map[string]string{"RELAY_OPERATOR_RETRY": "2s", "RELAY_CHECK_INTERVAL": "1s"})
			asRelay(t, cluster, w, "Old-S3cret", "host all "+relayRole+" 127.0.0.1/32 scram-sha-256")
			file := filepath.Join(t.TempDir(), "password")
			replace(t, file, source.content("Old-S3cret"))
			source.use(w, file)
			r := w.Start()
			w.Insert(scenario.Batch("before", 20, "a", "b", "")...)
			w.Settle()

			w.Exec("alter role " + relayRole + " password 'New-S3cret'")
			if n := terminateBackends(w, `backend_type = 'client backend'`); n == 0 {
				t.Fatal("the relay had no SQL connection")
			}
			w.Insert(scenario.Batch("between", 20, "a", "b", "")...)
			r.AwaitLog("database refuses the relay's role, will be tried again")
			refusals := r.Logs().FilterMessage("database refuses the relay's role, will be tried again")
			if text := fmt.Sprint(refusals.All()[0].ContextMap()["error"]); !strings.Contains(text, `user "`+relayRole+`"`) {
				t.Errorf("the log does not say which role is refused: %s", text)
			}
			refused := func() int { return strings.Count(logText(t, cluster), "password authentication failed for user") }
			before, span := refused(), 8*time.Second
			scenario.Throughout(t, span, r.Alive)
			if n := refused() - before; n > int(span/time.Second) {
				t.Errorf("%d attempts in %s with a password that is refused", n, span)
			}
			if n := refusals.Len(); n != 1 {
				t.Errorf("%d lines about one refusal", n)
			}

			replace(t, file, source.content("New-S3cret"))
			w.Settle()
			if n := terminateBackends(w, `backend_type = 'walsender'`); n == 0 {
				t.Fatal("the relay had no replication connection")
			}
			w.Insert(scenario.Batch("after", 20, "a", "b", "")...)
			w.Settle()
			if err := r.Alive(); err != nil {
				t.Error(err)
			}
			for _, line := range r.Logs().All() {
				if text := fmt.Sprint(line.Message, line.ContextMap()); strings.Contains(text, "S3cret") {
					t.Errorf("a password in the log: %s", text)
				}
			}
		})
	}
}

// logText is what the server wrote to its log.
func logText(t *testing.T, cluster *pgtest.Cluster) string {
	t.Helper()
	text, err := os.ReadFile(cluster.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
