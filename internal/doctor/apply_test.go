package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// apply runs the safe repairs of a report and returns them with the lines of the
// log.
func apply(t *testing.T, database *pgx.ConnConfig, report *doctor.Report) ([]doctor.Repair, []observer.LoggedEntry) {
	t.Helper()
	core, lines := observer.New(zap.InfoLevel)
	repairs := report.Repairs()
	if err := doctor.Apply(t.Context(), database, repairs, zap.New(core)); err != nil {
		t.Fatal(err)
	}
	return repairs, lines.All()
}

// ids are the checks of repairs.
func ids(repairs []doctor.Repair) (names []string) {
	for _, r := range repairs {
		names = append(names, r.ID)
	}
	return names
}

// Many faults at once are mended by what is safe to run, and each statement is
// written down.
func TestApply(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	cfg.Role = newRole(t, url, "")
	execute(t, url, "drop publication outbox_relay", "alter table outbox.messages drop constraint messages_key_unique",
		"alter function outbox.claim(text, text, interval) reset search_path", "drop trigger messages_never_updated on outbox.messages",
		"alter table outbox.deferred set (autovacuum_enabled = off)")
	repairs, lines := apply(t, cfg.Database, examine(t, cfg))
	want := []string{"D04", "D28", "D27", "D29", "D43", "D21", "D41"}
	if diff := cmp.Diff(want, ids(repairs)); diff != "" {
		t.Errorf("repairs (-want +got)\n%s", diff)
	}
	var statements int
	for _, r := range repairs {
		if r.Error != "" || r.Done != len(r.Statements) {
			t.Errorf("%s: %d of %d done: %s", r.ID, r.Done, len(r.Statements), r.Error)
		}
		statements += r.Done
	}
	if len(lines) != statements {
		t.Errorf("%d lines in the log for %d statements", len(lines), statements)
	}
	for _, line := range lines {
		about := line.ContextMap()
		if line.Message != "repair applied" || about["role"] != "postgres" || about["database"] != cfg.Database.Database || about["sql"] == "" || about["check"] == "" {
			t.Errorf("in the log: %s %v", line.Message, about)
		}
	}
	report := examine(t, cfg)
	if report.Failed > 0 || len(report.Repairs()) > 0 {
		t.Errorf("finds faults afterwards: %+v", report.Checks)
	}
}

// What a role may not do is said with what helps, and the next repair is tried.
func TestApply_MayNot(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	role := newRole(t, url, "replication")
	cfg.Database = as(cfg.Database, role)
	execute(t, url, "alter role "+pgx.Identifier{role}.Sanitize()+" set default_transaction_read_only = on")
	repairs, lines := apply(t, cfg.Database, examine(t, cfg))
	if diff := cmp.Diff([]string{"D02", "D28"}, ids(repairs)); diff != "" {
		t.Fatalf("repairs (-want +got)\n%s", diff)
	}
	if own := repairs[0]; own.Error != "" || own.Done != 1 {
		t.Errorf("a role may change its own settings, also from a session that was read-only: %+v", own)
	}
	r := repairs[1]
	if r.Done != 0 || !strings.Contains(r.Error, "permission denied") || !strings.Contains(r.Error, "DATABASE_URL") || !strings.Contains(r.Error, "--role") {
		t.Errorf("says %+v", r)
	}
	if len(lines) != 2 || lines[1].Message != "repair failed" {
		t.Errorf("in the log: %v", lines)
	}
	expect(t, cfg, "D28", doctor.Fail)
}

// Nothing that takes something away is ever run without a person: no slot, row,
// table of somebody else, row security, setting of the server.
func TestRepairs_OnlySafeOnes(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	makeSlot(t, url, cfg.Slot, "pgoutput")
	noteReconciled(t, url, cfg.Slot)
	execute(t, url, "create table other (id int primary key)", "alter publication outbox_relay add table other",
		"grant select on outbox.messages to public",
		"insert into outbox.dispatched (message_id, attempts) values (100, 1)")
	report := examine(t, cfg)
	for _, id := range []string{"D44", "D51", "D22", "D14"} {
		if r := result(t, report, id); r.SQL == "" || r.Safe {
			t.Errorf("%s is %+v", id, r)
		}
	}
	if repairs := report.Repairs(); len(repairs) > 0 {
		t.Errorf("would run %v", repairs)
	}
	execute(t, url, "alter table outbox.deferred set unlogged", "drop publication outbox_relay")
	if r := expect(t, cfg, "D25", doctor.Fail); r.Safe {
		t.Errorf("a table would be locked and rewritten without a person: %+v", r)
	}
	if r := expect(t, cfg, "D21", doctor.Fail); r.Safe || !strings.Contains(r.SQL, "pg_drop_replication_slot") {
		t.Errorf("a slot would be dropped without a person: %+v", r)
	}
	if slices.ContainsFunc(examine(t, cfg).Repairs(), func(r doctor.Repair) bool { return strings.Contains(strings.Join(r.Statements, " "), "slot") }) {
		t.Error("a repair touches a slot")
	}
}

// A pooler gives the session to the next one, settings and all.
func TestApply_NotThroughAPooler(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	execute(t, url, "drop publication outbox_relay")
	report := examine(t, cfg)
	err := doctor.Apply(t.Context(), parse(t, pgtest.Pooler(t, url)), report.Repairs(), zap.NewNop())
	if err == nil || !strings.Contains(err.Error(), "direct address") {
		t.Errorf("says %v", err)
	}
	expect(t, cfg, "D21", doctor.Fail)
}
