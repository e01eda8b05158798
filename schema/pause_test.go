package schema_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// pauseOf is what the row of a queue says about its pause: who, why, and whether
// the time of its beginning is there.
func pauseOf(t *testing.T, conn *pgx.Conn, queue string) string {
	t.Helper()
	return query[string](t, conn, `select concat_ws('|', paused, paused_at is not null, coalesce(paused_by, '-'), coalesce(paused_reason, '-'))
		from outbox.queues where queue = $1`, queue)
}

// Whoever pauses a queue with plain SQL leaves word of it.
func TestQueues_NotePauses(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Migrated(t))
	for _, step := range []struct{ does, sql, want string }{
		{"a queue that goes on", `insert into outbox.queues (queue, paused_by, paused_reason) values ('a', 'x', 'y')`, "f|f|-|-"},
		{"paused", `update outbox.queues set paused = true`, "t|t|postgres|-"},
		{"paused again", `insert into outbox.queues (queue, paused) values ('a', true) on conflict (queue) do update set paused = excluded.paused`, "t|t|postgres|-"},
		{"another setting", `update outbox.queues set max_in_flight = 3`, "t|t|postgres|-"},
		{"a reason afterwards", `update outbox.queues set paused_reason = 'ticket 8'`, "t|t|postgres|ticket 8"},
		{"resumed", `insert into outbox.queues (queue) values ('a') on conflict (queue) do update set paused = excluded.paused`, "f|f|-|-"},
		{"a reason without a pause", `update outbox.queues set paused_reason = 'ticket 8', paused_at = now()`, "f|f|-|-"},
		{
			"with a name and a reason",
			`insert into outbox.queues (queue, paused, paused_by, paused_reason) values ('a', true, 'anna', 'ticket 9')
			on conflict (queue) do update set paused = true, paused_by = excluded.paused_by, paused_reason = excluded.paused_reason`, "t|t|anna|ticket 9",
		},
		{"inserted as paused", `delete from outbox.queues; insert into outbox.queues (queue, paused) values ('a', true)`, "t|t|postgres|-"},
	} {
		exec(t, conn, step.sql)
		if got := pauseOf(t, conn, "a"); got != step.want {
			t.Errorf("%s: the row says %s, want %s", step.does, got, step.want)
		}
	}
}

// A pause that lasts keeps its beginning, and a hostile search_path changes nothing.
func TestQueues_PauseKeepsItsBeginning(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Migrated(t))
	exec(t, conn, `create function public.now() returns timestamptz language sql as $$ select timestamptz '1999-01-01' $$;
		set search_path = public, pg_catalog; insert into outbox.queues (queue, paused) values ('a', true)`)
	began := query[time.Time](t, conn, `select paused_at from outbox.queues`)
	if age := time.Since(began); age < -time.Minute || age > time.Minute {
		t.Errorf("paused at %s", began)
	}
	exec(t, conn, `update outbox.queues set paused = true, paused_reason = 'r'`)
	if got := query[time.Time](t, conn, `select paused_at from outbox.queues`); !got.Equal(began) {
		t.Errorf("began at %s, want %s", got, began)
	}
}

// A dump whose data is restored into a schema that is there, as pg_dump --data-only
// writes it, says what was.
func TestQueues_PauseOutlivesADump(t *testing.T) {
	t.Parallel()
	from, to := connect(t, pgtest.Migrated(t)), connect(t, pgtest.Migrated(t))
	exec(t, from, `insert into outbox.queues (queue, paused, paused_at, paused_by, paused_reason)
		values ('a', true, '2026-03-01 07:28+00', 'anna', 'ticket 9')`)
	var rows bytes.Buffer
	if _, err := from.PgConn().CopyTo(t.Context(), &rows, `copy outbox.queues to stdout`); err != nil {
		t.Fatal(err)
	}
	if _, err := to.PgConn().CopyFrom(t.Context(), &rows, `copy outbox.queues from stdin`); err != nil {
		t.Fatal(err)
	}
	const told = `select concat_ws('|', paused, paused_at at time zone 'UTC', paused_by, paused_reason) from outbox.queues`
	if got := query[string](t, to, told); got != "t|2026-03-01 07:28:00|anna|ticket 9" {
		t.Errorf("restored: %s", got)
	}
}
