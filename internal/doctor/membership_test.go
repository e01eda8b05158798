package doctor_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// What keeps some messages, or something of them, from the stream.
func TestD20_NotAllOfIt(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		harm   string
		status doctor.Status
		texts  []string
	}{
		"a row filter":   {"alter publication outbox_relay set table outbox.messages where (queue = 'orders')", doctor.Warn, []string{"row filter", "orders"}},
		"a column list":  {"alter publication outbox_relay set table outbox.messages (id, queue)", doctor.Fail, []string{"leaves out key", "payload", "slot recreate"}},
		"a child table":  {"create table outbox.more () inherits (outbox.messages)", doctor.Fail, []string{`"outbox"."more" inherits from "outbox"."messages"`}},
		"its partitions": {"alter publication outbox_relay set (publish_via_partition_root = false)", doctor.Pass, nil}, // there are none
	}
	if query[int](t, pgtest.Shared(t).URL("postgres"), "select current_setting('server_version_num')::int") < 150000 {
		delete(tests, "a row filter") // there are none
		delete(tests, "a column list")
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Migrated(t)
			cfg := newConfig(t, url)
			execute(t, url, test.harm)
			r := expect(t, cfg, "D20", test.status, test.texts...)
			if test.status != doctor.Pass {
				mend(t, url, r)
				expect(t, cfg, "D20", doctor.Pass)
			}
		})
	}
}

// SCH-12: a payload that cannot be sent.
func TestD20_BinaryPayload(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	execute(t, url, `alter table outbox.messages drop constraint messages_payload_object, drop constraint messages_payload_size,
		alter payload type bytea using convert_to(payload::text, 'UTF8')`)
	expect(t, newConfig(t, url), "D20", doctor.Fail, "payload", "bytea", "jsonb")
}

// Without the right to read the sequence nothing is claimed: some servers answer
// nothing instead of refusing.
func TestD22_MayNotRead(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	role := newRole(t, url, "replication")
	cfg := newConfig(t, url)
	cfg.Database = as(cfg.Database, role)
	quoted := pgx.Identifier{role}.Sanitize()
	execute(t, url, "grant usage on schema outbox to "+quoted, "grant all on all tables in schema outbox to "+quoted,
		"insert into outbox.dispatched (message_id, attempts) values (1, 1)")
	expect(t, cfg, "D22", doctor.Skip, "needs select on outbox.messages_id_seq", "D28")
}

// Numbers that have outcomes are given out again.
func TestD22_BeginAgain(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	const message = "insert into outbox.messages (key, queue, payload) values (gen_random_uuid(), 'orders', '{}')"
	expect(t, cfg, "D22", doctor.Pass)
	execute(t, url, message, message, message, "insert into outbox.dispatched (message_id, attempts) values (1, 1), (3, 1)",
		"insert into outbox.dead_letters (message_id, attempts, reason) values (2, 1, 'refused')")
	expect(t, cfg, "D22", doctor.Pass)
	execute(t, url, "select setval('outbox.messages_id_seq', 4, false)") // the next one is 4
	expect(t, cfg, "D22", doctor.Pass, "3")
	execute(t, url, "select setval('outbox.messages_id_seq', 3, false)")
	expect(t, cfg, "D22", doctor.Fail, "the last one is 2", "up to 3")
	execute(t, url, "truncate outbox.messages restart identity", message, message)
	mend(t, url, expect(t, cfg, "D22", doctor.Fail, "begin again", "up to 3"))
	expect(t, cfg, "D22", doctor.Pass)
	execute(t, url, message)
	if got := query[int](t, url, `select count(*)::int from outbox.messages m where id in (1, 2, 4)
		and not exists (select from outbox.dispatched where message_id = m.id) and not exists (select from outbox.dead_letters where message_id = m.id)`); got != 3 {
		t.Errorf("%d messages are without outcome, want the 2 that were taken for others and a new one", got)
	}
}
