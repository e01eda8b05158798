package judge

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// rig is a run without relays, on a migrated database.
func rig(t *testing.T) (*run, *pgx.Conn) {
	t.Helper()
	return rigAt(t, pgtest.Migrated(t))
}

func rigAt(t *testing.T, url string) (*run, *pgx.Conn) {
	t.Helper()
	r := newRun(nil, Config{Writers: 1, Lanes: 1, Scale: 1, Seed: 1, Note: func(line string) { t.Log(line) }})
	t.Cleanup(r.queue.Close)
	r.url = url
	conn, err := pgx.Connect(t.Context(), r.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // also after the test's end
	return r, conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// write commits rows to the ledger and the table.
func write(t *testing.T, r *run, conn *pgx.Conn, rows ...row) {
	t.Helper()
	first := r.ledger.begin(0, rows)
	for i := range rows {
		exec(t, conn, `insert into outbox.messages (key, queue, payload) values ($1, 'orders', '{}')`, key(0, first+i, rows[i].generation))
	}
	r.ledger.end(0, first, len(rows), committed)
}

// Dead letters are redriven when their queue would take them; one that nobody
// scripted is a violation.
func TestOperators_TendDeadLetters(t *testing.T) {
	t.Parallel()
	r, conn := rig(t)
	rows := make([]row, 60)
	for i := range rows {
		rows[i] = row{lane: -1, generation: 1}
	}
	write(t, r, conn, rows...)
	write(t, r, conn, row{lane: -1})
	exec(t, conn, `insert into outbox.dead_letters (message_id, attempts, reason) select id, 1, 'refused' from outbox.messages where key like 'sick%'`)
	state := func() (s string) {
		if err := conn.QueryRow(t.Context(), `select (select count(*) filter (where reason <> 'discarded') from outbox.dead_letters)
			|| ' ' || (select count(*) filter (where reason = 'discarded') from outbox.dead_letters)
			|| ' ' || (select count(*) from outbox.deferred where reason = 'redriven')`).Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for range 2 { // the second time nothing is left to do
		if err := r.tendDeadLetters(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
	}
	hasty, discarded := int(r.report.Redriven), int(r.report.Discarded)
	if hasty == 0 || discarded == 0 || state() != fmt.Sprintf("%d %d %d", 60-hasty-discarded, discarded, hasty) {
		t.Errorf("%d were redriven and %d discarded, the tables have %s", hasty, discarded, state())
	}
	r.heal(1)
	if err := r.tendDeadLetters(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if got := state(); got != fmt.Sprintf("0 %d %d", discarded, 60-discarded) {
		t.Errorf("after healing the tables have %s", got)
	}
	want(t, r.ledger, "")
	exec(t, conn, `insert into outbox.dead_letters (message_id, attempts, reason) select id, 1, 'refused' from outbox.messages where key = 'w0-60'`)
	if err := r.tendDeadLetters(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	want(t, r.ledger, "dead letters")
}

// What a writer withdraws is certain only if it was deferred and the slot has
// passed it; a patient writer deletes nothing else.
func TestWriter_Withdraws(t *testing.T) {
	t.Parallel()
	r, conn := rig(t)
	exec(t, conn, `select pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
	write(t, r, conn, row{lane: -1}, row{lane: -1}, row{lane: -1}, row{lane: -1})
	exec(t, conn, `insert into outbox.deferred (message_id, queue, reason) select id, queue, 'held' from outbox.messages where key in ('w0-2', 'w0-3')`)
	w := &writer{ledger: r.ledger, conn: conn}
	w.withdraw(t.Context(), name{0, 0}, true, "0/0")            // not deferred, patient
	w.withdraw(t.Context(), name{0, 1}, false, "0/0")           // not deferred
	w.withdraw(t.Context(), name{0, 2}, true, "0/0")            // deferred
	w.withdraw(t.Context(), name{0, 3}, true, "FFFFFFFF/FFFFF") // deferred, the slot is behind
	var got []state
	for _, row := range r.ledger.writers[0] {
		got = append(got, row.state)
	}
	if diff := cmp.Diff([]state{committed, deleted, withdrawn, deleted}, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if err := r.judgeTables(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, r.ledger, "outcome") // w0-0 is there, and nobody sent it
}

// Marks are looked up in the tables.
func TestRun_WatchesMarks(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.Options{Settings: Settings})
	r, conn := rigAt(t, cluster.Migrated(t))
	write(t, r, conn, row{lane: -1, delay: -1, priority: -1}, row{lane: -1, delay: -1, priority: -1})
	exec(t, conn, `insert into outbox.dispatched (message_id, attempts) select id, 1 from outbox.messages where key = 'w0-0'`)
	r.report.begun = r.report.begun.Add(-markPatient * 10) // long ago
	r.ledger.saw(at(r.ledger, 1000, request("w0-0", 1)))
	r.ledger.saw(at(r.ledger, 1000, request("w0-1", 2)))
	marked, err := marksOf(t.Context(), conn, []string{"w0-0", "w0-1"})
	if err != nil || len(marked) != 1 || time.Since(marked["w0-0"]).Abs() > time.Minute {
		t.Errorf("marked are %v, %v", marked, err)
	}
	if err := r.watchMarks(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	want(t, r.ledger, "mark")
	r.tellCases(t.Context())
	if len(r.toldKeys) != 1 || r.toldKeys[0] != "w0-1" {
		t.Errorf("told the histories of %v, want the one without a mark", r.toldKeys)
	}
}
