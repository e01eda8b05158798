package scenario_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// setUp is a world, with its server if that is its own.
type setUp struct {
	*scenario.World

	server *pgtest.Cluster
}

// brokenSetUp is a fault, how the doctor names it, and what mends it.
type brokenSetUp struct {
	// on makes the world; nil is a migrated database of the shared server.
	on    func(*testing.T) *setUp
	harm  func(*testing.T, *scenario.World)
	check string
	warns bool // a warning, not a failure
	texts []string
	mend  func(*testing.T, *setUp, string)
}

// brokenSetUps are faults that operators have made, in every part of a set-up.
var brokenSetUps = map[string]brokenSetUp{
	"wrong wal_level": {
		on:   onServer(map[string]string{"wal_level": "replica"}),
		harm: nothing, check: "D03", texts: []string{"replica", "logical", "restart"},
		mend: printedAndRestart,
	},
	"no right to replicate": {
		harm:  func(t *testing.T, w *scenario.World) { w.Exec("alter role " + asRole(t, w) + " noreplication") },
		check: "D04", texts: []string{"may not replicate", "alter role"}, mend: applied,
	},
	"pooler in the way": {
		harm: func(t *testing.T, w *scenario.World) {
			w.Env["RELAY_REPLICATION_URL"] = pgtest.Pooler(t, w.URL)
		},
		check: "D06", texts: []string{"pooler", "RELAY_REPLICATION_URL"}, mend: unset("RELAY_REPLICATION_URL"),
	},
	"no right to connect": {
		harm: func(t *testing.T, w *scenario.World) {
			role, database := asRole(t, w), pgx.Identifier{w.Conn.Config().Database}.Sanitize()
			w.Exec("revoke connect on database " + database + " from public, " + role)
		},
		check: "D01", texts: []string{"may not connect", "grant connect"}, mend: printed,
	},
	"publication without the table": {
		harm:  sql("create table other (id int primary key)", "alter publication outbox_relay set table other"),
		check: "D20", texts: []string{"does not contain", "add table"}, mend: applied,
	},
	"no publication": {
		harm:  sql("drop publication outbox_relay"),
		check: "D21", texts: []string{"does not exist", "create publication"}, mend: applied,
	},
	"publication of updates": {
		harm:  sql("alter publication outbox_relay set (publish = 'update')"),
		check: "D21", texts: []string{"does not publish inserts"}, mend: applied,
	},
	"another table in the publication": {
		harm:  sql("create table other (id int primary key)", "alter publication outbox_relay add table other"),
		check: "D51", warns: true, texts: []string{"other", "decoded and sent for nothing"}, mend: printed,
	},
	"row security": {
		harm: func(t *testing.T, w *scenario.World) {
			asRole(t, w)
			w.Exec("alter table outbox.messages enable row level security")
		},
		check: "D26", texts: []string{"row security", "messages"}, mend: printed,
	},
	"slot of another plugin": {
		harm:  func(_ *testing.T, w *scenario.World) { makeSlot(w, "test_decoding") },
		check: "D09", texts: []string{`plugin "test_decoding"`, "RELAY_SLOT"}, mend: anotherSlot,
	},
	"slot is gone": {
		harm:  func(_ *testing.T, w *scenario.World) { usedSlot(w) },
		check: "D09", texts: []string{"is gone", "safe in the table"}, mend: printed,
	},
	"slot is lost": {
		on:    onServer(map[string]string{"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}),
		harm:  loseTheSlot,
		check: "D10", texts: []string{"lost", "safe in the table"}, mend: printed,
	},
	"slot that nobody reads": {
		harm: func(_ *testing.T, w *scenario.World) {
			makeSlot(w, "pgoutput")
			usedSlot(w)
			w.Exec("update outbox.relays set updated_at = now() - interval '1 hour'")
		},
		check: "D12", warns: true, texts: []string{"nobody reads", "start the relay"},
		mend: func(t *testing.T, w *setUp, _ string) { process(t, w.World, nil); w.AwaitSlot() },
	},
	"slot was moved": {
		harm: func(_ *testing.T, w *scenario.World) {
			makeSlot(w, "pgoutput")
			usedSlot(w)
			w.Exec(`update outbox.relays set closed_at = now(),
				confirmed_lsn = (select confirmed_flush_lsn - 1 from pg_replication_slots where slot_name = slot)`)
		},
		check: "D19", warns: true, texts: []string{"moved slot", "start the relay"},
		mend: func(t *testing.T, w *setUp, _ string) { process(t, w.World, nil); w.AwaitSlot() },
	},
	"no limit of kept WAL": {
		on:   onServer(nil),
		harm: nothing, check: "D14", warns: true, texts: []string{"no limit", "max_slot_wal_keep_size"}, mend: printed,
	},
	"no slot left": {
		on:    onServer(map[string]string{"max_replication_slots": "1"}),
		harm:  sql("select pg_create_physical_replication_slot('of_somebody')"),
		check: "D16", texts: []string{"no slot left for the relay", "restart"}, mend: printedAndRestart,
	},
	"unlogged table": {
		harm:  sql("alter table outbox.dispatched set unlogged"),
		check: "D25", texts: []string{"dispatched", "empty after a crash"}, mend: printed,
	},
	"missing grant": {
		harm: func(t *testing.T, w *scenario.World) {
			w.Exec("revoke insert on outbox.dead_letters from " + asRole(t, w))
		},
		check: "D28", texts: []string{"insert on dead_letters"}, mend: applied,
	},
	"sessions that cannot write": {
		harm: func(t *testing.T, w *scenario.World) {
			w.Exec("alter role " + asRole(t, w) + " set default_transaction_read_only = on")
		},
		check: "D02", texts: []string{"read-only", "reset"}, mend: printed,
	},
	"no schema": {
		on:   func(t *testing.T) *setUp { return &setUp{World: scenario.On(t, pgtest.Database(t))} },
		harm: nothing, check: "D31", texts: []string{"no schema", "outbox-relay migrate"}, mend: byVerb("migrate", "up"),
	},
	"standby": {
		on: func(t *testing.T) *setUp {
			p := newPair(t)
			p.Env["DATABASE_URL"] = p.standby.URL(p.database)
			return &setUp{World: p.World}
		},
		harm:  nothing,
		check: "D02", texts: []string{"is a standby", "target_session_attrs=read-write"},
		mend: func(_ *testing.T, w *setUp, _ string) { w.Env["DATABASE_URL"] = w.URL },
	},
	"another cluster": {
		harm: func(_ *testing.T, w *scenario.World) {
			usedSlot(w)
			makeSlot(w, "pgoutput")
			w.Exec("update outbox.relays set system_identifier = 4711, timeline = 1")
		},
		check: "D46", texts: []string{"another cluster", "outbox-relay adopt"},
		mend: func(t *testing.T, w *setUp, _ string) {
			verb(t, w.World, 0, "adopt", "--yes")
			process(t, w.World, nil)
			w.AwaitSlot()
		},
	},
	"wrong key": {
		harm:  demandKey,
		check: "D48", texts: []string{"the API key is refused", "INFRAI_API_KEY"},
		mend: func(_ *testing.T, w *setUp, _ string) { w.Env["INFRAI_API_KEY"] = "the-right-key" },
	},
	"missing queue": {
		harm:  sql("insert into outbox.messages (key, queue, payload) values ('a', 'invoices', '{}')"),
		check: "D48", texts: []string{"invoices", "queues provision"}, mend: byVerb("queues", "provision", "invoices", "--yes"),
	},
	"numbers begin again": {
		harm:  sql("insert into outbox.dispatched (message_id, attempts) values (100, 1)"),
		check: "D22", texts: []string{"begin again", "up to 100"}, mend: printed,
	},
	"no unique key": {
		harm:  sql("alter table outbox.messages drop constraint messages_key_unique"),
		check: "D27", texts: []string{"messages (key)"}, mend: applied,
	},
	"function for everybody": {
		harm:  sql("create function outbox.send() returns int language sql security definer set search_path = pg_catalog as 'select 1'"),
		check: "D44", texts: []string{"execute send", "revoke"}, mend: printed,
	},
}

// Each of many broken set-ups is named together with its repair, and the repair
// mends it: the SQL as printed, `doctor --apply --yes`, a verb or a setting.
func TestDoctor_BrokenSetUps(t *testing.T) {
	t.Parallel()
	for name, fault := range brokenSetUps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &setUp{}
			if fault.on != nil {
				w = fault.on(t)
			} else {
				w.World = scenario.New(t)
			}
			fault.harm(t, w.World)
			status := "fail"
			if fault.warns {
				status = "warn"
			}
			repair := doctorSays(t, w.World, fault.check, status, fault.texts...)
			fault.mend(t, w, repair)
			doctorSays(t, w.World, fault.check, "pass")
		})
	}
}

func nothing(*testing.T, *scenario.World) {}

// sql harms by statements.
func sql(statements ...string) func(*testing.T, *scenario.World) {
	return func(_ *testing.T, w *scenario.World) {
		for _, s := range statements {
			w.Exec(s)
		}
	}
}

// onServer makes a world on a server of its own.
func onServer(settings map[string]string) func(*testing.T) *setUp {
	return func(t *testing.T) *setUp {
		server := pgtest.New(t, pgtest.Options{Settings: settings})
		return &setUp{scenario.On(t, server.Migrated(t)), server}
	}
}

// printed runs the SQL that the doctor printed.
func printed(t *testing.T, w *setUp, repair string) {
	t.Helper()
	if repair == "" {
		t.Fatal("the doctor prints no SQL")
	}
	mend(t, w.World, repair)
}

// printedAndRestart does what most settings of the server need.
func printedAndRestart(t *testing.T, w *setUp, repair string) {
	t.Helper()
	printed(t, w, repair)
	if err := w.server.Restart("fast"); err != nil {
		t.Fatal(err)
	}
}

// applied lets the doctor run its SQL, as an administrator for the relay's role.
// Without --yes it changes nothing.
func applied(t *testing.T, w *setUp, repair string) {
	t.Helper()
	env := maps.Clone(w.Env)
	args := []string{"doctor", "--json", "--apply", "--role", role(w.World)}
	env["DATABASE_URL"] = w.URL // the administrator's
	listed := treat(t, env, args...)
	if listed.Applied || len(listed.Repairs) == 0 {
		t.Fatalf("lists %+v", listed)
	}
	done := treat(t, env, append(args, "--yes")...)
	var statements []string
	for _, r := range done.Repairs {
		statements = append(statements, r.Statements...)
		if r.Error != "" {
			t.Errorf("%s: %s", r.ID, r.Error)
		}
	}
	if got := strings.Join(statements, ";\n") + ";"; !done.Applied || !strings.Contains(got, repair) {
		t.Errorf("runs %q, want what was printed: %q", got, repair)
	}
}

// treatment is the JSON of doctor --apply.
type treatment struct {
	Applied bool
	Repairs []struct {
		ID, Error  string
		Statements []string
	}
}

func treat(t *testing.T, env map[string]string, args ...string) (found treatment) {
	t.Helper()
	p := relaybin.Run(t, env, args...)
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(p.Stdout()), &found); err != nil {
		t.Fatalf("doctor --apply: %v: %s", err, p.Stdout())
	}
	return found
}

// byVerb mends by a verb of the program.
func byVerb(args ...string) func(*testing.T, *setUp, string) {
	return func(t *testing.T, w *setUp, _ string) { verb(t, w.World, 0, args...) }
}

// unset mends by leaving a setting out.
func unset(name string) func(*testing.T, *setUp, string) {
	return func(_ *testing.T, w *setUp, _ string) { delete(w.Env, name) }
}

// anotherSlot leaves the slot to its owner.
func anotherSlot(t *testing.T, w *setUp, repair string) {
	t.Helper()
	if repair != "" {
		t.Errorf("prints SQL for a slot of somebody else: %s", repair)
	}
	w.Env["RELAY_SLOT"] += "_2"
	mend(t, w.World, doctorSays(t, w.World, "D09", "warn", "does not exist yet"))
}

// role is whom the relay connects as.
func role(w *scenario.World) string {
	u, err := url.Parse(w.Env["DATABASE_URL"])
	if err != nil {
		return ""
	}
	return u.User.Username()
}

func makeSlot(w *scenario.World, plugin string) {
	w.Exec("select pg_create_logical_replication_slot($1, $2)", w.Env["RELAY_SLOT"], plugin)
}

// usedSlot leaves the row of a relay that has used the slot.
func usedSlot(w *scenario.World) {
	w.Exec("insert into outbox.relays (slot, epoch, reconciled_at) values ($1, 1, now())", w.Env["RELAY_SLOT"])
}

// loseTheSlot writes WAL until the server throws away what the slot needs.
func loseTheSlot(t *testing.T, w *scenario.World) {
	t.Helper()
	makeSlot(w, "pgoutput")
	usedSlot(w)
	pgtest.Eventually(t, scenario.Patience, func() error {
		w.Exec("select pg_logical_emit_message(false, '', repeat('x', 1000000))")
		w.Exec("select pg_switch_wal()")
		w.Exec("checkpoint")
		if w.Count("select count(*) from pg_replication_slots where wal_status = 'lost'") == 0 {
			return errors.New("the slot is not lost yet")
		}
		return nil
	})
}

// demandKey makes a queue that takes one key only.
func demandKey(t *testing.T, w *scenario.World) {
	t.Helper()
	queue := emulator.New(emulator.Config{APIKey: "the-right-key", Queues: []string{scenario.QueueName}})
	server := httptest.NewServer(queue)
	t.Cleanup(func() { queue.Close(); server.Close() })
	w.Env["INFRAI_BASE_URL"], w.Env["INFRAI_API_KEY"] = server.URL, "a-wrong-key"
}
