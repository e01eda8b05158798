package scenario_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// What carries messages from a server that was left to the one that took its place;
// docs/operations.md has it.
const (
	sqlStranded = `select id, key, queue, ordering_key, payload, headers, delay_seconds, priority, deliver_at, created_at ` +
		`from outbox.messages m where not exists (select from outbox.dispatched d where d.message_id = m.id) ` +
		`and not exists (select from outbox.dead_letters d where d.message_id = m.id) order by id`

	sqlStrandedTable = `create temp table stranded as select id, key, queue, ordering_key, payload, headers, delay_seconds, priority, deliver_at, created_at
from outbox.messages with no data;`

	sqlCarryOver = `insert into outbox.messages (key, queue, ordering_key, payload, headers, delay_seconds, priority, deliver_at, created_at)
select key, queue, ordering_key, payload, headers, delay_seconds, priority, deliver_at, created_at from stranded order by id
on conflict (key) do nothing;`

	sqlNotGone = `select s.key, s.queue, coalesce(m.state, 'not there') as state
from stranded s left join outbox.message_status m on m.key = s.key where m.state is distinct from 'dispatched' order by s.id;`
)

// The application wrote to the server of before for a while after the dump. No relay
// looks there; what the new server lacks is carried over by its key, twice without
// harm, and what both have stays as it is.
func TestCluster_WhatTheOldServerStillHas(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{`\copy (` + sqlStranded + `) to stranded.txt`, sqlStrandedTable, sqlCarryOver, sqlNotGone} {
		if !strings.Contains(string(page), sql) {
			t.Errorf("docs/operations.md does not have this: %s", sql)
		}
	}

	old := scenario.New(t)
	messages := scenario.Batch("m", 30, "a", "b", "")
	p := process(t, old, nil)
	old.Insert(messages[:10]...)
	old.Settle()
	terminate(t, p)
	p.AwaitExit(t, 0)
	old.Insert(messages[10:20]...) // in the dump, and without outcome

	moved := scenario.On(t, pgtest.New(t).Migrated(t))
	restore(t, old.URL, moved.URL)
	moved.Env["RELAY_SLOT"] = old.Env["RELAY_SLOT"]
	old.Insert(messages[20:]...) // by a part of the application that was late
	if text := verb(t, moved, 0, "adopt", "--yes"); !strings.Contains(text, "10 messages without outcome") {
		t.Errorf("adopt says:\n%s", text)
	}
	process(t, moved, nil)
	moved.Committed(messages[10:20]...)
	moved.Settle()

	if text := verb(t, old, 0, "status"); !strings.Contains(text, "no relay is streaming") || !strings.Contains(text, "20 waiting") {
		t.Errorf("the status of the old server is\n%s", text)
	}
	ctx := context.Background()
	source, target := connectTo(t, old.URL), connectTo(t, moved.URL)
	var text strings.Builder
	if _, err := source.PgConn().CopyTo(ctx, &text, "copy ("+sqlStranded+") to stdout"); err != nil {
		t.Fatal(err)
	}
	if _, err := target.Exec(ctx, sqlStrandedTable); err != nil {
		t.Fatal(err)
	}
	if _, err := target.PgConn().CopyFrom(ctx, strings.NewReader(text.String()), "copy stranded from stdin"); err != nil {
		t.Fatal(err)
	}
	notGone := func(want int64) {
		t.Helper()
		tag, err := target.Exec(ctx, sqlNotGone)
		if err != nil {
			t.Fatal(err)
		}
		if tag.RowsAffected() != want {
			t.Errorf("%d of the messages have not gone out, want %d", tag.RowsAffected(), want)
		}
	}
	notGone(10)
	for _, want := range []int64{10, 0} {
		tag, err := target.Exec(ctx, sqlCarryOver)
		if err != nil {
			t.Fatal(err)
		}
		if tag.RowsAffected() != want {
			t.Errorf("%d messages were carried over, want %d", tag.RowsAffected(), want)
		}
	}
	moved.Committed(messages[20:]...)
	moved.Settle()
	notGone(0)
	if text := verb(t, old, 0, "slot", "drop", "--yes"); !strings.Contains(text, "20 messages have no outcome yet") {
		t.Errorf("the old server lets its slot go with\n%s", text)
	}
}
