package doctor_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func TestD40_DeadRows(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	expect(t, cfg, "D40", doctor.Pass)
	execute(t, url, "alter table outbox.dispatched set (autovacuum_enabled = false)",
		"insert into outbox.dispatched (message_id, attempts) select n, 1 from generate_series(1, 110000) n", "delete from outbox.dispatched")
	pgtest.Eventually(t, 30*time.Second, func() error {
		if query[int](t, url, "select n_dead_tup::int from pg_stat_user_tables where relname = 'dispatched'") < 110000 {
			return errors.New("the statistics do not know yet")
		}
		return nil
	})
	r := expect(t, cfg, "D40", doctor.Warn, "dispatched: 110000", "vacuum does not keep up")
	// A vacuum leaves what a snapshot of somebody else may still see, be it that of an
	// analyze or of a session that begins.
	pgtest.Eventually(t, time.Minute, func() error {
		mend(t, url, r)
		if now := result(t, examine(t, cfg), "D40"); now.Status != doctor.Pass {
			return errors.New(now.Message)
		}
		return nil
	})
}

func TestD41_Neglected(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	expect(t, cfg, "D41", doctor.Pass)
	execute(t, url, "alter table outbox.deferred set (autovacuum_enabled = off, vacuum_truncate = on)", "alter table outbox.claims reset (vacuum_truncate)")
	mend(t, url, expect(t, cfg, "D41", doctor.Warn, "deferred has autovacuum off", "deferred lacks vacuum_truncate", "claims lacks"))
	expect(t, cfg, "D41", doctor.Pass)
}

// SCH-07: a table that is not in the WAL. The publication must be mended after it.
func TestD25_Unlogged(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	expect(t, cfg, "D25", doctor.Pass)
	execute(t, url, "alter publication outbox_relay drop table outbox.messages", "alter table outbox.messages set unlogged", "alter table outbox.deferred set unlogged")
	r := expect(t, cfg, "D25", doctor.Fail, `"outbox"."messages"`, `"outbox"."deferred"`, "empty after a crash")
	expect(t, cfg, "D20", doctor.Skip, "D25 failed")
	mend(t, url, r)
	expect(t, cfg, "D25", doctor.Pass)
	mend(t, url, expect(t, cfg, "D20", doctor.Fail))
	expect(t, cfg, "D20", doctor.Pass)
}

func TestD29_Triggers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ harm, text string }{
		"the guard is gone":     {"drop trigger messages_never_updated on outbox.messages", "does not exist"},
		"the guard is off":      {"alter table outbox.messages disable trigger messages_never_updated", "is disabled"},
		"no note of a pause":    {"drop trigger queues_note_pause on outbox.queues", "queues_note_pause does not exist"},
		"it is off":             {"alter table outbox.queues disable trigger queues_note_pause", "queues_note_pause is disabled"},
		"both are gone":         {"drop trigger queues_note_pause on outbox.queues; drop trigger messages_never_updated on outbox.messages", "bytes that the queue may have already; nobody notes who pauses"},
		"one for every outcome": {"create trigger count_them after insert on outbox.dispatched for each row execute function count_them()", "dispatched.count_them"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Migrated(t)
			cfg := newConfig(t, url)
			execute(t, url, "create function count_them() returns trigger language plpgsql as 'begin return null; end'",
				"create trigger of_the_application after insert on outbox.messages for each row execute function count_them()")
			expect(t, cfg, "D29", doctor.Pass)
			execute(t, url, test.harm)
			mend(t, url, expect(t, cfg, "D29", doctor.Warn, test.text))
			expect(t, cfg, "D29", doctor.Pass)
			execute(t, url, "insert into outbox.queues (queue, paused) values ('q', true)")
			if by := query[string](t, url, "select coalesce(paused_by, '') from outbox.queues"); by != "postgres" {
				t.Errorf("the trigger notes %q", by)
			}
		})
	}
}

// What a trigger of somebody else writes is lost while it is disabled: the finding
// says so before the statement, and no repair does it by itself.
func TestD29_NotWithoutItsOwner(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	execute(t, url, "create function note_delivery() returns trigger language plpgsql as 'begin return null; end'",
		"create trigger note_delivery after insert on outbox.dispatched for each row execute function note_delivery()")
	r := expect(t, newConfig(t, url), "D29", doctor.Warn, "dispatched.note_delivery")
	if r.Safe {
		t.Error("another team could lose rows without a person")
	}
	for _, want := range []string{"ask the owner", "is lost", "`enable trigger`", "end the session that has the lock"} {
		if !strings.Contains(r.Remedy, want) {
			t.Errorf("the remedy lacks %q: %s", want, r.Remedy)
		}
	}
}

func TestD51_OtherTables(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	expect(t, cfg, "D51", doctor.Pass)
	execute(t, url, `create table "Log" (id int primary key)`, `alter publication outbox_relay add table "Log"`)
	r := expect(t, cfg, "D51", doctor.Warn, `public."Log"`, "1 table besides")
	if r.Safe {
		t.Error("another subscriber could lose his table without a person")
	}
	mend(t, url, r)
	expect(t, cfg, "D51", doctor.Pass)
}
