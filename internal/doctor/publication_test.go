package doctor_test

import (
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// SCH-05: the publication is not there.
func TestD21_Missing(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	execute(t, url, "drop publication outbox_relay")
	r := expect(t, cfg, "D21", doctor.Fail, "outbox_relay", "does not exist")
	expect(t, cfg, "D20", doctor.Skip, "D21 failed")
	mend(t, url, r)
	expect(t, cfg, "D21", doctor.Pass)
	expect(t, cfg, "D20", doctor.Pass)
}

// SCH-03: a slot that is older than its publication cannot be used any more.
func TestD21_MissingWithASlot(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	makeSlot(t, url, cfg.Slot, "pgoutput")
	noteReconciled(t, url, cfg.Slot)
	execute(t, url, "drop publication outbox_relay", "insert into outbox.messages (key, queue, payload) values ('a', 'orders', '{}')")
	mend(t, url, expect(t, cfg, "D21", doctor.Fail, "stop the relay before"))
	expect(t, cfg, "D20", doctor.Pass)
	expect(t, cfg, "D09", doctor.Pass)
	// What was written in between is found in the table, and the slot can be
	// read: both servers fail here with a slot that is too old.
	execute(t, url, "insert into outbox.messages (key, queue, payload) values ('b', 'orders', '{}')")
	if got := query[int](t, url, "select count(*)::int from pg_logical_slot_get_binary_changes($1, null, null, 'proto_version', '1', 'publication_names', 'outbox_relay')", cfg.Slot); got < 4 {
		t.Errorf("the slot shows %d records, want begin, relation, insert and commit", got)
	}
	expectReconcile(t, url, cfg.Slot)
}

// SCH-05: the publication is for another table.
func TestD20_WithoutTheTable(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	noteReconciled(t, url, cfg.Slot)
	execute(t, url, "create table other (id int primary key)", "alter publication outbox_relay set table other")
	mend(t, url, expect(t, cfg, "D20", doctor.Fail, `"outbox"."messages"`, `"outbox_relay"`))
	expect(t, cfg, "D20", doctor.Pass)
	expectReconcile(t, url, cfg.Slot)
}

// SCH-05: the publication publishes something else.
func TestD21_UpdatesOnly(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	noteReconciled(t, url, cfg.Slot)
	execute(t, url, "alter publication outbox_relay set (publish = 'update')")
	mend(t, url, expect(t, cfg, "D21", doctor.Fail, "does not publish inserts", "updates"))
	expect(t, cfg, "D21", doctor.Pass)
	expectReconcile(t, url, cfg.Slot)
}

func TestD21_MoreThanInserts(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	execute(t, url, "alter publication outbox_relay set (publish = 'insert, delete')")
	mend(t, url, expect(t, cfg, "D21", doctor.Warn, "inserts, deletes"))
	expect(t, cfg, "D21", doctor.Pass)
	expect(t, cfg, "D20", doctor.Pass)
}

func TestD21_AllTables(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	execute(t, url, "create publication everything for all tables with (publish = 'insert')")
	cfg.Publication = "everything"
	expect(t, cfg, "D21", doctor.Warn, "all tables", "RELAY_PUBLICATION")
	expect(t, cfg, "D20", doctor.Pass)
}
