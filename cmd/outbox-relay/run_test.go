package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
	"github.com/outbox-relay/outbox-relay/schema"
)

func TestRun_PublishesUntilStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.insert(t, "before-the-slot")
	d := start(t, r.with("RELAY_SLOTT", "x"), "run")
	d.AwaitMessage(t, "session began")
	r.awaitAccepted(t, "before-the-slot")
	r.insert(t, "live")
	r.awaitAccepted(t, "before-the-slot", "live")
	r.awaitDispatched(t, 2)
	if code := d.end(); code != exitStopped {
		t.Errorf("exit code is %d", code)
	}
	lines := d.Lines()
	first, last := lines[0], lines[len(lines)-1]
	if first.Message() != "starting" || first.Fields["version"] == "" || first.Fields["mode"] != "wal" || first.Fields["slot"] != r.settings["RELAY_SLOT"] {
		t.Errorf("the first line is %s", first.Text)
	}
	if last.Message() != "stopped" || last.Fields["reason"] != errStop.Error() {
		t.Errorf("the last line is %s", last.Text)
	}
	unknown := d.AwaitMessage(t, "unknown setting has no effect")
	if unknown.Fields["name"] != "RELAY_SLOTT" || unknown.Fields["nearest"] != "RELAY_SLOT" {
		t.Errorf("the misspelt setting is told as %s", unknown.Text)
	}
	if active := query[bool](t, r.url, "select active from pg_replication_slots where slot_name = $1", r.settings["RELAY_SLOT"]); active {
		t.Error("the slot is held after the stop")
	}
}

// awaitDispatched waits until so many messages are marked.
func (r *rig) awaitDispatched(t *testing.T, want int) {
	t.Helper()
	pgtest.Eventually(t, patience, func() error {
		if got := query[int](t, r.url, "select count(*)::int from outbox.dispatched"); got != want {
			return fmt.Errorf("%d messages are dispatched, want %d", got, want)
		}
		return nil
	})
}

// The roles that `grants print` makes are enough: the owner migrates, the
// application writes, the relay publishes.
func TestRun_WithPrintedRoles(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	admin := cluster.URL("postgres")
	as := func(role string) settings {
		return settings{"DATABASE_URL": strings.Replace(admin, "postgres@", role+"@", 1)}
	}
	grants := func(part string) {
		r := expectCode(t, settings{"DATABASE_URL": admin}, exitStopped, []string{"grants", "print", "--part", part})
		sql(t, admin, r.out)
	}
	grants("roles")
	sql(t, admin, "alter role outbox_owner login", "alter role outbox_app login")
	expectCode(t, as("outbox_owner"), exitStopped, []string{"migrate", "up"})
	grants("rights")

	r := rigOn(t, admin)
	environment := r.with("DATABASE_URL", as("outbox_relay")["DATABASE_URL"])
	if got := expectCode(t, environment, exitStopped, []string{"doctor"}); !strings.Contains(got.out, " 0 failed") {
		t.Errorf("doctor says %s", got.out)
	}
	d := start(t, environment, "run")
	d.AwaitMessage(t, "session began")
	sql(t, as("outbox_app")["DATABASE_URL"], "select outbox.enqueue('a', 'orders', '{}')")
	r.awaitAccepted(t, "a")
	r.awaitDispatched(t, 1)
	if code := d.end(); code != exitStopped {
		t.Errorf("exit code is %d", code)
	}
	for _, role := range []string{"outbox_relay", "outbox_monitor"} {
		expectCode(t, environment.with("DATABASE_URL", as(role)["DATABASE_URL"]), exitStopped, []string{"status"}, "no relay is streaming")
	}
}

// OPS-08: the second relay waits and takes over.
func TestRun_StandbyTakesOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := start(t, r.settings, "run")
	first.AwaitMessage(t, "session began")
	second := start(t, r.settings, "run")
	second.AwaitMessage(t, "slot is held by another session, standing by")
	r.insert(t, "one")
	r.awaitAccepted(t, "one")
	if code := first.end(); code != exitStopped {
		t.Errorf("exit code of the first is %d", code)
	}
	second.AwaitMessage(t, "session began")
	r.insert(t, "two")
	r.awaitAccepted(t, "one", "two")
	if epoch := query[int](t, r.url, "select epoch::int from outbox.relays"); epoch != 2 {
		t.Errorf("epoch is %d, want 2", epoch)
	}
}

func TestRun_SchemaMissing(t *testing.T) {
	t.Parallel()
	r := rigOn(t, pgtest.Database(t))
	got := expectCode(t, r.settings, exitSchema, []string{"run"}, "version 0", fmt.Sprintf("version %d", schema.Version), "migrate up")
	if last := lastLine(got.err); !strings.Contains(last, `"msg":"stopped"`) || !strings.Contains(last, `"exit_code":10`) {
		t.Errorf("the last line is %s", last)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// OUT-05: the slot is lost, and a person wants to decide.
func TestRun_SlotLost(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{
		"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB",
	}})
	r := rigOn(t, cluster.Migrated(t))
	d := start(t, r.settings, "run")
	d.AwaitMessage(t, "session began")
	d.end()

	r.insert(t, "only-in-the-table")
	loseSlot(t, r.url)
	environment := r.with("RELAY_SLOT_LOST", "stop")
	expectCode(t, environment, exitSlotLost, []string{"run"}, "lost", "safe in the table")
	report := expectCode(t, environment, exitDoctorFailed, []string{"doctor"}, "D10", "pg_drop_replication_slot")

	// What doctor prints mends it, and nothing is lost.
	var statements []string
	for line := range strings.Lines(report.out) {
		if line = strings.TrimSpace(line); strings.HasSuffix(line, ";") {
			statements = append(statements, line)
		}
	}
	sql(t, r.url, statements...)
	expectCode(t, environment, exitStopped, []string{"doctor"})
	start(t, environment, "run")
	r.awaitAccepted(t, "only-in-the-table")
}

// loseSlot writes WAL until the server throws the slot's away.
func loseSlot(t *testing.T, url string) {
	t.Helper()
	pgtest.Eventually(t, patience, func() error {
		sql(t, url, "select pg_logical_emit_message(false, '', repeat('x', 1000000))", "select pg_switch_wal()", "checkpoint")
		if query[string](t, url, "select wal_status from pg_replication_slots") != "lost" {
			return errors.New("the slot is not lost yet")
		}
		return nil
	})
}

// OPS-05: the slot belongs to something else.
func TestRun_SlotOfSomebodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sql(t, r.url, "select pg_create_logical_replication_slot('"+r.settings["RELAY_SLOT"]+"', 'test_decoding')")
	expectCode(t, r.settings, exitSlotLost, []string{"run"}, "test_decoding", "does not touch it")
	if got := query[string](t, r.url, "select plugin from pg_replication_slots where slot_name = $1", r.settings["RELAY_SLOT"]); got != "test_decoding" {
		t.Errorf("the slot is now of %s", got)
	}
}

// A database that is down is waited for; a stop ends the wait.
func TestRun_WaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	config, err := pgx.ParseConfig(r.url)
	if err != nil {
		t.Fatal(err)
	}
	nobody := strings.Replace(r.url, fmt.Sprint(config.Port), "1", 1)
	d := start(t, r.with("DATABASE_URL", nobody), "run")
	d.AwaitMessage(t, "database does not answer, waiting for it")
	if code := d.end(); code != exitStopped {
		t.Errorf("exit code is %d", code)
	}
	expectCode(t, r.with("DATABASE_URL", strings.Replace(r.url, config.Database, "no_such_database", 1)),
		exitNeedsPerson, []string{"run"}, "no_such_database")
}

func TestRun_KeyFile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	environment := r.with("INFRAI_API_KEY", "", "INFRAI_API_KEY_FILE", t.TempDir()+"/missing")
	expectCode(t, environment, exitUsage, []string{"run"}, "/missing")
}

// OPS-07: the built program stops on SIGTERM, and a second signal does not wait
// for a queue that hangs.
func TestRun_Signals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := relaybin.Run(t, r.settings, "run")
	p.AwaitLog(t, "session began")
	r.insert(t, "one")
	r.awaitAccepted(t, "one")
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.AwaitExit(t, exitStopped)
	last := p.AwaitLog(t, "stopped")
	if reason, _ := last.Fields["reason"].(string); !strings.Contains(reason, "terminated") {
		t.Errorf("the last line is %s", last.Text)
	}

	if _, err := r.queue.AddFault(emulator.Fault{Hang: true}); err != nil {
		t.Fatal(err)
	}
	p = relaybin.Run(t, r.with("RELAY_LOG_LEVEL", "debug"), "run")
	p.AwaitLog(t, "session began")
	seen := r.queue.Journal().Last()
	r.insert(t, "two")
	if err := r.queue.Journal().Wait(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.AwaitLog(t, "draining")
	// A signal that comes within the moment in which the first one is taken in
	// counts as part of it, so like a person this does not stop at one.
	pgtest.Eventually(t, patience, func() error {
		select {
		case <-p.Done():
			return nil
		default:
			return errors.Join(errors.New("still running"), p.Signal(syscall.SIGTERM))
		}
	})
	p.AwaitExit(t, -1) // a signal ended it, not the drain timeout
}
