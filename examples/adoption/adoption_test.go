// Package adoption_test runs the SQL of docs/adoption.md.
package adoption_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/schema"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The polling table comes over while somebody writes events: none is left out,
// and none is written twice. The application's role has the rights that the page
// names, and no more.
func TestPollingTable_ComesOverWithOpenWriters(t *testing.T) {
	t.Parallel()
	p, url := load(t), pgtest.Migrated(t)
	admin := pgtest.Connect(t, url)
	steps := p["From a polling table"]
	exec(t, admin, steps[0])
	exec(t, admin, `insert into events (topic, aggregate_id, body, published_at) values ('orders', 'a', '{"n": 1}', now())`)
	exec(t, admin, `insert into events (topic, aggregate_id, body) values ('orders', 'a', '{"n": 2}'), ('orders', null, '[3]')`)
	exec(t, admin, steps[1])

	writer := pgtest.Connect(t, url)
	exec(t, writer, `begin; insert into events (topic, aggregate_id, body) values ('orders', 'a', '{"n": 4}')`)
	cutover := pgtest.Connect(t, url)
	pid := cutover.PgConn().PID()
	done := make(chan error, 1)
	go func() {
		_, err := cutover.PgConn().Exec(context.Background(), steps[2]).ReadAll()
		done <- err
	}()
	awaitLock(t, admin, pid)
	exec(t, writer, `commit`)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	exec(t, writer, `insert into events (topic, aggregate_id, body) values ('orders', 'a', '{"n": 5}')`)

	want := []string{
		`event-2 orders a {"data": {"n": 2}, "event_id": "event-2"}`,
		`event-3 orders - {"data": [3], "event_id": "event-3"}`,
		`event-4 orders a {"data": {"n": 4}, "event_id": "event-4"}`,
		`event-5 orders a {"data": {"n": 5}, "event_id": "event-5"}`,
	}
	if diff := cmp.Diff(want, messages(t, admin)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}

	// Back: 2 was dispatched, 3 was dispatched so long ago that retention took
	// it, 4 is a dead letter, 5 waits.
	exec(t, admin, `insert into outbox.dispatched (message_id, attempts) select id, 1 from outbox.messages where key = 'event-2'`)
	exec(t, admin, `delete from outbox.messages where key = 'event-3'`)
	exec(t, admin, `insert into outbox.dead_letters (message_id, attempts, reason)
		select id, 1, 'refused' from outbox.messages where key = 'event-4'`)
	exec(t, admin, p["Back to the poller"][0])
	exec(t, admin, `insert into events (topic, body) values ('orders', '{"n": 6}')`)
	left := column(t, admin, `select id::text from events where published_at is null order by id`)
	if diff := cmp.Diff([]string{"4", "5", "6"}, left); diff != "" {
		t.Errorf("events that the poller finds (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:1], messages(t, admin)); diff != "" {
		t.Errorf("messages afterwards (-want +got):\n%s", diff)
	}
}

// An application needs the rights of outbox_app for the trigger, and nothing
// else changes for it.
func TestPollingTable_RightsOfTheApplication(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	url := cluster.Migrated(t)
	admin := pgtest.Connect(t, url)
	steps := load(t)["From a polling table"]
	for _, step := range steps {
		exec(t, admin, step)
	}
	exec(t, admin, `create role shop_app; grant insert on events to shop_app`)
	app := pgtest.Connect(t, url)
	exec(t, app, `set role shop_app`)
	const write = `insert into public.events (topic, body) values ('orders', '{}')`
	if _, err := app.Exec(t.Context(), write); err == nil {
		t.Error("the application wrote a message without a right to")
	}
	var grants strings.Builder
	err := schema.Grants(&grants, schema.GrantsConfig{
		Schema: schema.DefaultSchema, Database: admin.Config().Database, Application: schema.DefaultApplication,
	})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, admin, grants.String())
	exec(t, admin, `grant outbox_app to shop_app`)
	exec(t, app, write)
	if got := messages(t, admin); len(got) != 1 {
		t.Errorf("messages: %q", got)
	}
}

// Debezium's table feeds the outbox, also where the row is deleted at once; then
// a view takes its place.
func TestDebezium_TriggerThenView(t *testing.T) {
	t.Parallel()
	p, url := load(t), pgtest.Migrated(t)
	conn := pgtest.Connect(t, url)
	for _, step := range p["From Debezium's outbox table"] {
		exec(t, conn, step)
	}
	const insert = `insert into public.outboxevent values ('00000000-0000-0000-0000-00000000000%d', 'Orders', '%s', 'placed', '%s')`
	exec(t, conn, fmt.Sprintf(insert, 1, "o-1", `{"before": "the trigger"}`))

	steps := p["With a trigger"]
	exec(t, conn, steps[0])
	exec(t, conn, fmt.Sprintf(`begin; `+insert+`; delete from public.outboxevent; commit`, 2, "o-1", `{"n": 2}`))
	exec(t, conn, fmt.Sprintf(`begin; `+insert+`; rollback`, 3, "o-1", `{"n": 3}`))
	exec(t, conn, fmt.Sprintf(insert, 4, "", `[4]`))
	exec(t, conn, `select pg_create_logical_replication_slot('debezium', 'pgoutput'); create publication dbz_publication for table outboxevent`)
	exec(t, conn, steps[1])
	if left := column(t, conn, `select slot_name::text from pg_replication_slots where database = current_database()
		union all select pubname::text from pg_publication where pubname like 'dbz%'`); left != nil {
		t.Errorf("left behind: %q", left)
	}

	exec(t, conn, p["With a view"][0])
	tag, err := conn.Exec(t.Context(), fmt.Sprintf(insert, 5, "o-1", `{"n": 5}`))
	if err != nil || tag.RowsAffected() != 1 {
		t.Errorf("insert into the view: %s, %v", tag, err)
	}
	tag, err = conn.Exec(t.Context(), `delete from outboxevent where type = 'placed' and aggregateid = 'o-1'`)
	if err != nil || tag.RowsAffected() != 0 {
		t.Errorf("delete from the view: %s, %v", tag, err)
	}

	const message = `00000000-0000-0000-0000-00000000000%d orders %s {"data": %s, "type": "placed", "event_id": "00000000-0000-0000-0000-00000000000%[1]d", "aggregate_id": "%[4]s"}`
	want := []string{
		fmt.Sprintf(message, 2, "o-1", `{"n": 2}`, "o-1"),
		fmt.Sprintf(message, 4, "-", `[4]`, ""),
		fmt.Sprintf(message, 5, "o-1", `{"n": 5}`, "o-1"),
	}
	if diff := cmp.Diff(want, messages(t, conn)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// What the page looks at on the first day exists, and shows the dead letter.
func TestFirstDay_Looks(t *testing.T) {
	t.Parallel()
	p, conn := load(t), pgtest.Connect(t, pgtest.Migrated(t))
	exec(t, conn, `select outbox.enqueue('sent', 'orders', '{}'), outbox.enqueue('refused', 'orders', '{}'), outbox.enqueue('new', 'orders', '{}')`)
	exec(t, conn, `insert into outbox.dispatched (message_id, attempts) values (1, 1);
		insert into outbox.dead_letters (message_id, attempts, reason) values (2, 1, 'refused')`)
	results, err := conn.PgConn().Exec(t.Context(), p["The first day"][0]).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]int, len(results))
	for i, r := range results {
		rows[i] = len(r.Rows)
	}
	if len(rows) != 5 || rows[0] != 3 || rows[1] != 1 || rows[4] < 8 {
		t.Errorf("rows of each look: %v, want 3 states, 1 dead letter, slots, transactions, at least 8 tables", rows)
	}
	left := column(t, conn, p["Taking it out again"][0])
	if len(left) != 1 {
		t.Errorf("still to be sent: %q, want one", left)
	}
}

// Claims do without slot and publication.
func TestTakingItOut_ClaimsGoOn(t *testing.T) {
	t.Parallel()
	conn := pgtest.Connect(t, pgtest.Migrated(t))
	exec(t, conn, `drop publication outbox_relay`)
	if got := column(t, conn, `select outbox.claim('mailer', 'e-1')::text union all select outbox.claim('mailer', 'e-1')::text`); cmp.Diff([]string{"true", "false"}, got) != "" {
		t.Errorf("claims: %q", got)
	}
}

// awaitLock returns once the session waits for a lock.
func awaitLock(t *testing.T, conn *pgx.Conn, pid uint32) {
	t.Helper()
	pgtest.Eventually(t, time.Minute, func() error {
		var waits bool
		err := conn.QueryRow(t.Context(), `select wait_event_type is not distinct from 'Lock' from pg_stat_activity where pid = $1`, pid).Scan(&waits)
		if err == nil && !waits {
			err = fmt.Errorf("session %d does not wait for a lock", pid)
		}
		return err
	})
}

// messages are those of the outbox, in the order of their ids.
func messages(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	return column(t, conn, `select concat_ws(' ', key, queue, coalesce(ordering_key, '-'), payload) from outbox.messages order by id`)
}

// column is the first column of a query, as text.
func column(t *testing.T, conn *pgx.Conn, query string) []string {
	t.Helper()
	results, err := conn.PgConn().Exec(t.Context(), query).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, row := range results[0].Rows {
		values = append(values, string(row[0]))
	}
	return values
}

// exec runs a script.
func exec(t *testing.T, conn *pgx.Conn, script string) {
	t.Helper()
	if _, err := conn.PgConn().Exec(t.Context(), script).ReadAll(); err != nil {
		t.Fatalf("%s\n%v", script, err)
	}
}
