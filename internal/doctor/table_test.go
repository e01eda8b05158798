package doctor_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/schema"
)

func migrate(t *testing.T, url string) {
	t.Helper()
	cfg := schema.Config{Schema: "outbox", Publication: "outbox_relay"}
	if _, err := schema.Migrate(t.Context(), parse(t, url), cfg, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
}

func TestD31_Missing(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	cfg := newConfig(t, url)
	expect(t, cfg, "D31", doctor.Fail, "not there", "outbox-relay migrate")
	expect(t, cfg, "D26", doctor.Skip, "D31 failed")
	expect(t, cfg, "D28", doctor.Skip, "D31")
	expect(t, cfg, "D21", doctor.Skip, "D31")
	migrate(t, url)
	expect(t, cfg, "D31", doctor.Pass)
}

func TestD31_Old(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	execute(t, url, "delete from outbox.schema_version")
	execute(t, url, fmt.Sprintf("insert into outbox.schema_version (version) values (%d)", schema.Version-1))
	want := fmt.Sprintf("needs version %d", schema.Version)
	if schema.Version == 1 {
		want = "not there"
	}
	expect(t, newConfig(t, url), "D31", doctor.Fail, want)
}

func TestD28_NoRights(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	role := newRole(t, url, "replication")
	cfg := newConfig(t, url)
	cfg.Database = as(cfg.Database, role)
	mend(t, url, expect(t, cfg, "D28", doctor.Fail, pgx.Identifier{role}.Sanitize(),
		"usage on schema", "select on messages", "execute on record_position"))
	expect(t, cfg, "D28", doctor.Pass)
}

// Whoever may not look is told which right is missing, once.
func TestD28_HidesNothingElse(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	cfg.Database = as(cfg.Database, newRole(t, url, "replication"))
	report := examine(t, cfg)
	if report.Failed != 1 {
		t.Errorf("%d checks failed, want D28 alone: %+v", report.Failed, report.Checks)
	}
	for _, id := range []string{"D31", "D09"} {
		if r := result(t, report, id); r.Status != doctor.Skip || !strings.Contains(r.Message, "D28") {
			t.Errorf("%s is %+v", id, r)
		}
	}
}

// The statements that the program prints for the relay are enough.
func TestD28_PrintedGrants(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	role := newRole(t, url, "replication")
	cfg := newConfig(t, url)
	cfg.Database = as(cfg.Database, role)
	var sql strings.Builder
	err := schema.Grants(&sql, schema.GrantsConfig{
		Schema: "outbox", Database: cfg.Database.Database, Relay: role, Part: schema.PartRights,
	})
	if err != nil {
		t.Fatal(err)
	}
	execute(t, url, sql.String())
	if report := examine(t, cfg); report.Failed > 0 {
		t.Errorf("finds faults: %+v", report.Checks)
	}
}

func TestD28_OneRight(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	role := newRole(t, url, "replication")
	cfg := newConfig(t, url)
	cfg.Database = as(cfg.Database, role)
	quoted := pgx.Identifier{role}.Sanitize()
	execute(t, url, "grant usage on schema outbox to "+quoted, "grant all on all tables in schema outbox to "+quoted,
		"grant execute on all functions in schema outbox to "+quoted, "grant select on all sequences in schema outbox to "+quoted,
		"revoke insert on outbox.dispatched from "+quoted)
	r := expect(t, cfg, "D28", doctor.Fail, "insert on dispatched")
	if want := `grant insert on "outbox"."dispatched" to ` + quoted + ";"; r.SQL != want {
		t.Errorf("prints %q, want %q", r.SQL, want)
	}
	mend(t, url, r)
	expect(t, cfg, "D28", doctor.Pass)
	execute(t, url, "revoke delete on outbox.messages from "+quoted, "revoke select on outbox.messages_id_seq from "+quoted)
	mend(t, url, expect(t, cfg, "D28", doctor.Warn, "delete on messages", "select on messages_id_seq", "retention"))
	expect(t, cfg, "D28", doctor.Pass)
}

// The buttons of the page need rights on columns, and only where somebody may
// press them.
func TestD28_Buttons(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	role := newRole(t, url, "replication")
	cfg := newConfig(t, url)
	cfg.Database = as(cfg.Database, role)
	cfg.Buttons = true
	quoted := pgx.Identifier{role}.Sanitize()
	var sql strings.Builder
	err := schema.Grants(&sql, schema.GrantsConfig{Schema: "outbox", Database: cfg.Database.Database, Relay: role, Part: schema.PartRights})
	if err != nil {
		t.Fatal(err)
	}
	execute(t, url, sql.String())
	expect(t, cfg, "D28", doctor.Pass)

	execute(t, url, "revoke insert (queue, paused, paused_by, paused_reason), update (paused, paused_by, paused_reason) on outbox.queues from "+quoted,
		"grant insert (queue, paused), update (paused) on outbox.queues to "+quoted) // as an earlier version printed it
	r := expect(t, cfg, "D28", doctor.Warn, "cannot pause or resume a queue",
		"missing: insert (paused_by, paused_reason) on queues; update (paused_by, paused_reason) on queues")
	want := `grant insert (paused_by, paused_reason) on "outbox"."queues" to ` + quoted + ";\n" +
		`grant update (paused_by, paused_reason) on "outbox"."queues" to ` + quoted + ";"
	if r.SQL != want || !r.Safe {
		t.Errorf("prints %q, want %q", r.SQL, want)
	}
	mend(t, url, r)
	expect(t, cfg, "D28", doctor.Pass)

	execute(t, url, "revoke insert (queue, paused, paused_by, paused_reason), update (paused, paused_by, paused_reason) on outbox.queues from "+quoted)
	cfg.Buttons = false
	if r := expect(t, cfg, "D28", doctor.Pass, "has them all, but those for pause and resume on the page", "RELAY_ADMIN_TOKEN_FILE"); r.SQL != "" {
		t.Errorf("prints %q for buttons that nobody can press", r.SQL)
	}
	execute(t, url, "revoke delete on outbox.messages from "+quoted)
	if r := expect(t, cfg, "D28", doctor.Warn, "retention"); strings.Contains(r.SQL, "queues") {
		t.Errorf("prints %q", r.SQL)
	}
	cfg.Buttons = true
	mend(t, url, expect(t, cfg, "D28", doctor.Warn, "retention", "insert (queue, paused, paused_by, paused_reason) on queues"))
	expect(t, cfg, "D28", doctor.Pass)
	execute(t, url, "revoke all on outbox.queues from "+quoted, "grant select, insert, update on outbox.queues to "+quoted)
	expect(t, cfg, "D28", doctor.Pass)
}

func TestD26_RowSecurity(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	role := newRole(t, url, "replication")
	quoted := pgx.Identifier{role}.Sanitize()
	cfg := newConfig(t, url)
	cfg.Database = as(cfg.Database, role)
	execute(t, url, "grant usage on schema outbox to "+quoted, "grant all on all tables in schema outbox to "+quoted,
		"grant execute on all functions in schema outbox to "+quoted, "alter table outbox.messages enable row level security", "alter table outbox.dispatched enable row level security")
	forRole := newConfig(t, url) // an administrator, who sees every row, looks for the role
	expect(t, forRole, "D26", doctor.Pass)
	forRole.Role = role
	expect(t, forRole, "D26", doctor.Fail, `"outbox"."messages"`)
	mend(t, url, expect(t, cfg, "D26", doctor.Fail, `"outbox"."messages"`, `"outbox"."dispatched"`))
	expect(t, cfg, "D26", doctor.Pass)
}

// APP-04: two messages with one key, because nothing forbids them any more.
func TestD27_UniqueKeys(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	expect(t, cfg, "D27", doctor.Pass)
	execute(t, url, "alter table outbox.messages drop constraint messages_key_unique", "alter table outbox.deferred drop constraint deferred_pkey",
		"create unique index on outbox.messages (key) where priority is null")
	mend(t, url, expect(t, cfg, "D27", doctor.Fail, "messages (key)", "deferred (message_id)"))
	expect(t, cfg, "D27", doctor.Pass)
}

// SCH-08: names that need quotes.
func TestRun_OddNames(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	names := schema.Config{Schema: `Out"box.x`, Publication: `Pub "1"`}
	if _, err := schema.Migrate(t.Context(), parse(t, url), names, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	cfg := newConfig(t, url)
	cfg.Schema, cfg.Publication = names.Schema, names.Publication
	if report := examine(t, cfg); report.Failed > 0 {
		t.Errorf("finds faults: %+v", report.Checks)
	}
	execute(t, url, `alter publication "Pub ""1""" drop table "Out""box.x".messages`)
	mend(t, url, expect(t, cfg, "D20", doctor.Fail))
	expect(t, cfg, "D20", doctor.Pass)
}
