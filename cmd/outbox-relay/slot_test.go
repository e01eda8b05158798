package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/status"
)

func slotVerb(args ...string) []string { return append([]string{"slot"}, args...) }

// end stops a relay and waits for the end of its slot's reader. So does the relay
// itself, but for no more than three seconds.
func (r *rig) end(t *testing.T, d *daemon) {
	t.Helper()
	d.end()
	pgtest.Eventually(t, patience, func() error {
		if query[bool](t, r.url, "select exists (select from pg_replication_slots where database = current_database() and active)") {
			return errors.New("a slot is still held")
		}
		return nil
	})
}

func (r *rig) slotExists(t *testing.T) bool {
	t.Helper()
	return query[bool](t, r.url, "select exists (select from pg_replication_slots where slot_name = $1)", r.settings["RELAY_SLOT"])
}

func TestSlot_CreateAndShow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	slot := r.settings["RELAY_SLOT"]
	r.insert(t, "before-the-slot")
	expectCode(t, r.settings, exitSlotLost, slotVerb("show"), "does not exist", "outbox-relay slot create")
	expectCode(t, r.settings, exitStopped, slotVerb("create"), "slot \""+slot+"\" made", "making the slot")
	expectCode(t, r.settings, exitStopped, slotVerb("create"), "is there already")
	expectCode(t, r.settings, exitStopped, slotVerb("show"), "is not in use", "pgoutput", "confirmed flush", "retained WAL", "max_slot_wal_keep_size")

	d := start(t, r.settings, "run")
	r.awaitAccepted(t, "before-the-slot")
	got := expectCode(t, r.settings, exitStopped, slotVerb("show", "--json"))
	var report status.SlotReport
	if err := json.Unmarshal([]byte(got.out), &report); err != nil {
		t.Fatal(err)
	}
	if report.SchemaVersion != 1 || !report.Exists || !report.Active || report.ActivePID == nil || report.Trouble != "" ||
		!strings.HasPrefix(report.Holder, "outbox-relay ") {
		t.Errorf("report is %+v", report)
	}
	d.end()
}

// No relay would read a slot on a cluster that is not adopted; it would keep WAL for
// ever.
func TestSlot_NotBeforeTheClusterIsAdopted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	slot := r.settings["RELAY_SLOT"]
	sql(t, r.url, `insert into outbox.relays (slot, system_identifier, timeline, reconciled_at) values ('`+slot+`', 4711, 1, now())`)
	for _, args := range [][]string{{"create"}, {"recreate"}, {"recreate", "--yes"}} {
		expectCode(t, r.settings, exitNeedsPerson, slotVerb(args...), "no slot is made here", "system 4711", "dispatching is held", "`outbox-relay adopt`")
	}
	if r.slotExists(t) {
		t.Error("there is a slot")
	}
	expectCode(t, r.settings, exitStopped, slotVerb("drop", "--yes"), "does not exist")
	expectCode(t, r.settings, exitStopped, []string{"adopt", "--yes"}, "adopted")
	expectCode(t, r.settings, exitStopped, slotVerb("create"), "made")
}

// OPS-05: a slot of somebody else is told and left alone.
func TestSlot_OfSomebodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sql(t, r.url, "select pg_create_logical_replication_slot('"+r.settings["RELAY_SLOT"]+"', 'test_decoding')")
	expectCode(t, r.settings, exitSlotLost, slotVerb("show"), `belongs to plugin "test_decoding"`, "RELAY_SLOT")
	for _, args := range [][]string{{"create"}, {"recreate", "--yes"}, {"drop", "--yes"}} {
		expectCode(t, r.settings, exitSlotLost, slotVerb(args...), "test_decoding", "does not touch it")
	}
	if !r.slotExists(t) {
		t.Error("it was dropped")
	}
}

// Nothing is lost by it: what the old slot would have shown is in the table.
func TestSlot_Recreate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := start(t, r.settings, "run")
	r.insert(t, "a")
	r.awaitAccepted(t, "a")
	pid := query[int](t, r.url, "select active_pid from pg_replication_slots where slot_name = $1", r.settings["RELAY_SLOT"])
	for _, args := range [][]string{{"recreate"}, {"recreate", "--yes"}} {
		expectCode(t, r.settings, exitSlotHeld, slotVerb(args...), fmt.Sprintf("held by pid %d", pid), "stop the relay")
	}
	r.end(t, d)

	r.insert(t, "b")
	position := "select restart_lsn::text from pg_replication_slots where slot_name = $1"
	before := query[string](t, r.url, position, r.settings["RELAY_SLOT"])
	expectCode(t, r.settings, exitStopped, slotVerb("recreate"), "1 message has no outcome yet", "would be dropped and made anew", "--yes")
	if after := query[string](t, r.url, position, r.settings["RELAY_SLOT"]); after != before {
		t.Error("a look made the slot anew")
	}
	expectCode(t, r.settings, exitStopped, slotVerb("recreate", "--yes"), "dropped and made anew", "takes from the table")
	if after := query[string](t, r.url, position, r.settings["RELAY_SLOT"]); after == before {
		t.Error("the slot is the old one")
	}
	r.insert(t, "c")
	d = start(t, r.settings, "run")
	r.awaitDispatched(t, 3)
	for _, line := range d.Lines() {
		if line.Fields["level"] == "error" {
			t.Errorf("what an operator did is an alarm: %s", line.Text)
		}
	}
}

// A publication that is missing is told before anything is dropped.
func TestSlot_Recreate_NeedsThePublication(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	expectCode(t, r.settings, exitStopped, slotVerb("recreate", "--yes"), "\" made;")
	sql(t, r.url, "drop publication outbox_relay")
	expectCode(t, r.settings, exitNeedsPerson, slotVerb("recreate", "--yes"), "create publication")
	if !r.slotExists(t) {
		t.Error("the slot was dropped")
	}
}

// OPS-09: the removal says what it dropped, and what is left.
func TestSlot_Drop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := start(t, r.settings, "run")
	d.AwaitMessage(t, "session began")
	expectCode(t, r.settings, exitSlotHeld, slotVerb("drop", "--yes"), "held by pid")
	r.end(t, d)

	fill(t, r)
	slot := fmt.Sprintf("slot %q ", r.settings["RELAY_SLOT"])
	expectCode(t, r.settings, exitStopped, slotVerb("drop", "--publication"),
		"0 messages have no outcome yet, 4 wait in deferred", slot+"would be dropped", `publication "outbox_relay" would be dropped`, "nothing was changed")
	if !r.slotExists(t) {
		t.Fatal("a look dropped the slot")
	}
	expectCode(t, r.settings, exitStopped, slotVerb("drop", "--publication", "--yes"), slot+"dropped", `publication "outbox_relay" dropped`)
	if r.slotExists(t) || query[bool](t, r.url, "select exists (select from pg_publication)") {
		t.Error("something is left")
	}
	expectCode(t, r.settings, exitStopped, slotVerb("drop", "--publication", "--yes"), slot+"does not exist", `publication "outbox_relay" does not exist`)
}

// The printed roles: everybody may look; making and dropping takes REPLICATION,
// the record of it a right on a table, the publication its owner.
func TestSlot_WithPrintedRoles(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	admin := settings{"DATABASE_URL": cluster.URL("postgres")}
	as := func(role string) settings {
		return settings{"DATABASE_URL": strings.Replace(admin["DATABASE_URL"], "postgres@", role+"@", 1)}
	}
	for _, part := range []string{"roles", "rights"} {
		sql(t, admin["DATABASE_URL"], expectCode(t, admin, exitStopped, []string{"grants", "print", "--part", part}).out)
		if part == "roles" {
			expectCode(t, admin, exitStopped, []string{"migrate", "up"})
		}
	}
	monitor, relay := as("outbox_monitor"), as("outbox_relay")
	expectCode(t, monitor, exitNeedsPerson, slotVerb("create"), "permission denied", `grant select, update on "outbox"."relays" to "outbox_monitor"`)
	expectCode(t, relay, exitStopped, slotVerb("create"), "made")
	for _, role := range []settings{monitor, relay} {
		expectCode(t, role, exitStopped, slotVerb("show"), "is not in use")
	}
	expectCode(t, monitor, exitNeedsPerson, slotVerb("drop", "--yes"), `grant select, update on "outbox"."relays" to "outbox_monitor"`)
	sql(t, admin["DATABASE_URL"], "grant update on outbox.relays to outbox_monitor")
	expectCode(t, monitor, exitNeedsPerson, slotVerb("drop", "--yes"), `alter role "outbox_monitor" replication`)
	expectCode(t, relay, exitStopped, slotVerb("recreate", "--yes"), "dropped and made anew")
	expectCode(t, relay, exitNeedsPerson, slotVerb("drop", "--publication", "--yes"), `slot "outbox_relay" dropped`, `as its owner or a superuser: drop publication "outbox_relay"`)
	expectCode(t, admin, exitStopped, slotVerb("drop", "--publication", "--yes"), `publication "outbox_relay" dropped`)
}

// OPS-09: after a change of the name the old slot is pointed out, with what it
// keeps and how to drop it.
func TestRun_PointsOutTheSlotOfAnEarlierName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := start(t, r.settings, "run")
	d.AwaitMessage(t, "session began")
	r.end(t, d)

	old := r.settings["RELAY_SLOT"]
	renamed := r.with("RELAY_SLOT", old+"_new")
	d = start(t, renamed, "run")
	line := d.AwaitMessage(t, "slot that no relay uses any more keeps WAL")
	if line.Fields["level"] != "warn" || line.Fields["unused_slot"] != old || line.Fields["retained"] == "" ||
		line.Fields["sql"] != "select pg_drop_replication_slot('"+old+"')" {
		t.Errorf("the line is %s", line.Text)
	}
	d.AwaitMessage(t, "session began")
	expectCode(t, renamed, exitStopped, slotVerb("show"), "1 other slot of pgoutput", old)
	r.end(t, d)

	sql(t, r.url, line.Fields["sql"].(string))
	d = start(t, renamed, "run")
	d.AwaitMessage(t, "session began")
	for _, line := range d.Lines() {
		if line.Message() == "slot that no relay uses any more keeps WAL" {
			t.Errorf("pointed out after it was dropped: %s", line.Text)
		}
	}
}

// Where messages are read from the table there is no slot, and one that was in
// use before is left over, too.
func TestSlot_InPollMode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := start(t, r.settings, "run")
	d.AwaitMessage(t, "session began")
	r.end(t, d)
	polls := r.with("RELAY_MODE", "poll")
	d = start(t, polls, "run")
	if line := d.AwaitMessage(t, "slot that no relay uses any more keeps WAL"); line.Fields["unused_slot"] != r.settings["RELAY_SLOT"] {
		t.Errorf("the line is %s", line.Text)
	}
	for _, verb := range []string{"create", "recreate"} {
		expectCode(t, polls, exitUsage, slotVerb(verb), "RELAY_MODE is poll")
	}
	expectCode(t, polls, exitStopped, slotVerb("drop", "--yes"), "dropped")
	expectCode(t, polls, exitStopped, slotVerb("show"), "does not exist")
}

func TestSlot_WrongUsage(t *testing.T) {
	t.Parallel()
	expectCode(t, nil, exitUsage, []string{"slot"}, "needs a verb: create, drop, recreate, show")
	expectCode(t, nil, exitUsage, slotVerb("show", "outbox_relay"), "unexpected argument")
	expectCode(t, nil, exitUsage, slotVerb("show"), "DATABASE_URL")
}
