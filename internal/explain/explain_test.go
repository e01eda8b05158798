package explain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/internal/explain"
	"github.com/outbox-relay/outbox-relay/internal/golden"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/schema"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

// rig is a migrated database, with a session that holds the lock of a relay that
// polls: for all that can be told, a relay is at work.
type rig struct {
	t    *testing.T
	conn *pgx.Conn
	cfg  explain.Config
}

func setup(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, conn: pgtest.Connect(t, pgtest.Migrated(t))}
	r.cfg = explain.Config{Schema: "outbox", Slot: "slot_" + r.conn.Config().Database, Retention: 7 * 24 * time.Hour, MaxAttempts: 20}
	return r
}

// working is setup with a relay at work.
func working(t *testing.T) *rig {
	t.Helper()
	r := setup(t)
	r.exec(`insert into outbox.relays (slot, epoch, holder, version, confirmed_lsn) values ($1, 3, 'db1:4711', 'v1.2.3', '0/0')`, r.cfg.Slot)
	r.exec(`select pg_advisory_lock(hashtextextended($1, 0))`, r.cfg.Slot)
	return r
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.conn.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// messages writes messages k1 to kn with an ordering key.
func (r *rig) messages(n int) {
	r.t.Helper()
	r.exec(`insert into outbox.messages (key, queue, ordering_key, payload, created_at)
		select 'k' || i, 'orders', 'a', '{"secret": "payload"}', now() - interval '10 seconds' from generate_series(1, $1::int) i`, n)
}

func (r *rig) read(name string) *explain.Report {
	r.t.Helper()
	report, err := explain.Read(r.t.Context(), r.conn, r.cfg, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return report
}

// text is the report for people, which must be without payload and control
// characters.
func (r *rig) text(report *explain.Report) string {
	r.t.Helper()
	var b strings.Builder
	if err := report.Print(&b); err != nil {
		r.t.Fatal(err)
	}
	if strings.Contains(b.String(), "secret") || strings.Contains(b.String(), "\x1b") {
		r.t.Errorf("the text has a payload or control characters:\n%s", &b)
	}
	return b.String()
}

// Every life that a message can have, as SQL, and what is told of it.
func TestRead_Lives(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, sql string
		id        int
		state     explain.State
		texts     []string
	}{
		{
			"fresh", ``, 1, explain.Waiting,
			[]string{"message 1 is committed and has no outcome yet, and is ", " s old", "matter of milliseconds", "polling since", "db1:4711"},
		},
		{
			"waiting for long", `alter table outbox.messages disable trigger all; update outbox.messages set created_at = now() - interval '1 hour'`,
			1, explain.Waiting,
			[]string{"status says what keeps it, and if nothing does, verify", "outbox-relay status", "verify --from 1 --to 1"},
		},
		{
			"behind deferred ones", `insert into outbox.deferred (message_id, queue, ordering_key, reason, not_before, last_status) values
				(1, 'orders', 'a', 'transient', now() + interval '1 minute', 503), (2, 'orders', 'a', 'held', null, null)`,
			3, explain.Waiting,
			[]string{"2 deferred messages are before it in its ordering key, and it goes into the table", "the first, message 1, is tried again at", "status 503", "deferred retry-now 1"},
		},
		{
			"dispatched", `insert into outbox.dispatched (message_id, attempts, queue_message_id) values (1, 2, 'msg_1')`, 1, explain.Dispatched,
			[]string{`s after its transaction began: the queue has it as "msg_1"`, "nothing: it is the queue's now", "dispatched, with attempt 2"},
		},
		{
			"dispatched twice, perhaps", `insert into outbox.dispatched (message_id, attempts, possible_duplicate) values (1, 2, true)`, 1, explain.Dispatched,
			[]string{"and may have had it before"},
		},
		{
			"dispatched and deleted", `insert into outbox.dispatched (message_id, attempts) values (1, 1); delete from outbox.messages where id = 1`, 1, explain.Dispatched,
			[]string{"message 1 was dispatched", "its row was deleted"},
		},
		{
			"failed", `insert into outbox.deferred (message_id, queue, ordering_key, reason, attempts, charged, not_before, last_status, last_error, unknown_since)
				values (1, 'orders', 'a', 'unknown_outcome', 4, 2, now() + interval '1 minute', null, 'timeout' || chr(27), now() - interval '3 seconds')`, 1, explain.Deferred,
			[]string{
				"the last of 4 attempts failed, unknown_outcome (timeout )", "tries again at", "; 18 more failures that count make it a dead letter", "deferred retry-now 1",
				"attempts      4; 2 count towards the limit of 20, because a failure counts only if others got through",
				"an attempt ended without an answer: the queue may have it", "0 deferred messages in its lane",
			},
		},
		{
			"held by one that failed", `insert into outbox.deferred (message_id, queue, ordering_key, reason, not_before, attempts, last_status, last_error) values
				(1, 'orders', 'a', 'transient', now() + interval '1 minute', 3, 500, 'oops'), (2, 'orders', 'a', 'held', null, 0, null, null), (3, 'orders', 'a', 'held', null, 0, null, null)`,
			3, explain.Deferred,
			[]string{"is deferred: it waits its turn behind others", "2 deferred messages are before it in its ordering key", "after transient, status 500 (oops)", "deferred retry-now 1", "in its lane, first message 1: transient, status 500 (oops); 2 in its queue"},
		},
		{
			"held by a dead letter", `insert into outbox.queues (queue, on_dead_letter) values ('orders', 'hold');
				insert into outbox.dead_letters (message_id, attempts, reason) values (1, 1, 'refused');
				insert into outbox.deferred (message_id, queue, ordering_key, reason) values (1, 'orders', 'a', 'dead_letter'), (2, 'orders', 'a', 'held')`,
			2, explain.Deferred,
			[]string{"message 1, is a dead letter that holds the lane until a person decides", "dead-letters redrive 1", "a dead letter holds its lane"},
		},
		{
			"a dead letter that holds its lane", `insert into outbox.queues (queue, on_dead_letter) values ('orders', 'hold');
				insert into outbox.dead_letters (message_id, attempts, last_status, last_code, reason, last_error, request_id) values (1, 1, 422, 'INVALID', 'refused', 'no field', 'req_1');
				insert into outbox.deferred (message_id, queue, ordering_key, reason) values (1, 'orders', 'a', 'dead_letter')`,
			1, explain.Dead,
			[]string{"is a dead letter: refused, status 422, INVALID (no field); its lane waits for it", "dead-letters discard 1", `request "req_1"`},
		},
		{
			"dead", `insert into outbox.dead_letters (message_id, attempts, reason) values (1, 20, 'attempts_exhausted')`, 1, explain.Dead,
			[]string{"is a dead letter: attempts_exhausted", "until a person decides", "dead-letters redrive 1", "dead letter after 20 attempts"},
		},
		{
			"dead and deleted", `insert into outbox.dead_letters (message_id, attempts, reason) values (1, 20, 'refused'); delete from outbox.messages where id = 1`, 1, explain.Dead,
			[]string{"nothing to send again", "dead-letters discard 1"},
		},
		{
			"discarded", `insert into outbox.dead_letters (message_id, attempts, reason, discarded_at) values (1, 2, 'discarded', now())`, 1, explain.Dead,
			[]string{"a dead letter that was discarded at", "--include-discarded"},
		},
		{
			"scheduled", `insert into outbox.deferred (message_id, queue, reason, not_before) values (1, 'orders', 'scheduled', now() + interval '3 days')`, 1, explain.Deferred,
			[]string{"it waits for the time that the application asked for", "the relay sends it at", "in 3 days", "deferred release 1"},
		},
		{
			"in a paused queue", `insert into outbox.queues (queue, paused, paused_by, paused_reason) values ('orders', true, 'anna', 'ticket 8');
				insert into outbox.deferred (message_id, queue, ordering_key, reason) values (1, 'orders', 'a', 'held')`, 1, explain.Deferred,
			[]string{`nothing, until the queue "orders" is resumed: paused since `, " by anna: ticket 8", "queues resume orders", "orders: paused since "},
		},
		{
			"in a queue that is one lane", `insert into outbox.queues (queue, ordering, rate_per_second) values ('orders', 'queue', 2.5);
				insert into outbox.deferred (message_id, queue, ordering_key, reason) values (1, 'orders', 'b', 'held'), (2, 'orders', 'a', 'held'), (3, 'orders', null, 'scheduled')`,
			2, explain.Deferred,
			[]string{"1 deferred message is before it in its queue, which is one lane", "the first is message 1, held", "explain 1", "one lane, at most 2.5 messages a second"},
		},
		{
			"redriven", `insert into outbox.deferred (message_id, queue, ordering_key, reason, not_before, attempts, last_status) values (1, 'orders', 'a', 'redriven', now(), 3, 500)`, 1, explain.Deferred,
			[]string{
				"a person has sent it again, and it is due, after 3 attempts, the last one failed, status 500", "the relay sends it now",
				"attempts      3; none counts towards the limit of 20, because a redrive starts the count anew",
			},
		},
		{
			"recovered", `insert into outbox.deferred (message_id, queue, ordering_key, reason, not_before) values (9, 'orders', 'b', 'held', now()), (1, 'orders', 'a', 'recovered', now())`, 1, explain.Deferred,
			[]string{"the stream had not shown it", "1 deferred message of its queue is before it", "deferred list --queue orders"},
		},
		{
			"for ever", `insert into outbox.deferred (message_id, queue, ordering_key, reason, not_before) values (1, 'orders', 'a', 'transient', 'infinity')`, 1, explain.Deferred,
			[]string{"its time was set to infinity"},
		},
		{
			"to be withdrawn", `insert into outbox.deferred (message_id, queue, ordering_key, reason) values (1, 'orders', 'a', 'held'); delete from outbox.messages where id = 1`, 1, explain.Deferred,
			[]string{"was deleted by the application while it was deferred", "it is withdrawn as soon as its turn comes"},
		},
		{
			"withdrawn", `insert into outbox.withdrawn (message_id) values (1); delete from outbox.messages where id = 1`, 1, explain.Withdrawn,
			[]string{"was withdrawn", "it will not be sent"},
		},
		{
			"two outcomes", `insert into outbox.dispatched (message_id, attempts) values (1, 1); insert into outbox.deferred (message_id, queue, reason) values (1, 'orders', 'held')`, 1, explain.Dispatched,
			[]string{"FAULT: it is dispatched and deferred at once"},
		},
		{
			"a dead letter that is none", `insert into outbox.deferred (message_id, queue, reason) values (1, 'orders', 'dead_letter')`, 1, explain.Deferred,
			[]string{"FAULT: it holds its lane as a dead letter, and there is none"},
		},
		{
			"with the outcome of another", `insert into outbox.dispatched (message_id, attempts, dispatched_at) values (1, 1, now() - interval '1 hour')`, 1, explain.Dispatched,
			[]string{"FAULT: its outcome is older than it is"},
		},
		{
			"put back", `insert into outbox.withdrawn (message_id) values (1)`, 1, explain.Withdrawn,
			[]string{"FAULT: it is withdrawn and its row is there"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := working(t)
			r.messages(3)
			if _, err := r.conn.PgConn().Exec(t.Context(), c.sql).ReadAll(); err != nil {
				t.Fatal(err)
			}
			report := r.read(fmt.Sprint(c.id))
			text := r.text(report)
			if report.State != c.state {
				t.Errorf("the state is %s, want %s", report.State, c.state)
			}
			for _, want := range c.texts {
				if !strings.Contains(text, want) {
					t.Errorf("the text lacks %q", want)
				}
			}
			if t.Failed() {
				t.Log(text)
			}
			if _, err := json.Marshal(report); err != nil {
				t.Error(err)
			}
		})
	}
}

// Who is responsible, and why nothing happens.
func TestRead_NobodyAtWork(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(1)
	if text := r.text(r.read("1")); !strings.Contains(text, "next: nothing, until a relay runs: no relay has run yet") {
		t.Errorf("got\n%s", text)
	}
	r.exec(`insert into outbox.relays (slot, epoch, holder, system_identifier) values ($1, 3, 'db1:4711', 4711)`, r.cfg.Slot)
	if text := r.text(r.read("1")); !strings.Contains(text, "before an operator adopts this server") || !strings.Contains(text, "outbox-relay adopt") {
		t.Errorf("got\n%s", text)
	}
}

// A number is an id, unless only a key looks like it or somebody says so.
func TestRead_ByIDAndKey(t *testing.T) {
	t.Parallel()
	r := working(t)
	r.messages(2)
	r.exec(`insert into outbox.messages (key, queue, payload) values ('1', 'orders', '{}'), ('77', 'orders', '{}')`)
	for _, c := range []struct {
		name string
		key  bool
		want int64
	}{{"k2", false, 2}, {"1", false, 1}, {"1", true, 3}, {"77", false, 4}} {
		r.cfg.Key = c.key
		if got := r.read(c.name).MessageID; got != c.want {
			t.Errorf("%s (key %t) is message %d, want %d", c.name, c.key, got, c.want)
		}
	}
}

func TestRead_Unknown(t *testing.T) {
	t.Parallel()
	r := working(t)
	r.messages(2)
	r.exec(`delete from outbox.messages where id = 1`)
	other := pgtest.Connect(t, r.conn.Config().ConnString())
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	for _, c := range []struct {
		name   string
		possib []string
	}{
		{"order-17", []string{
			`no message with the key "order-17"`, "never written with this key", "more than 7 days ago", "known by its number only",
			"written elsewhere: this is schema outbox of database " + r.conn.Config().Database + " on server 127.0.0.1, port ", ", system ",
		}},
		{"4711", []string{"the highest one in the table is 2"}},
		{"1", []string{"its transaction rolled back", "the lowest number that is kept is 2"}},
	} {
		report := r.read(c.name)
		text := r.text(report)
		for _, want := range c.possib {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the text lacks %q:\n%s", c.name, want, text)
			}
		}
		if _, ok := errors.AsType[*explain.UnknownError](report.Err()); !ok || report.State != explain.Unknown {
			t.Errorf("%s: %v, state %s", c.name, report.Err(), report.State)
		}
	}
	if _, err := tx.Exec(t.Context(), `insert into outbox.messages (key, queue, payload) values ('order-17', 'orders', '{}')`); err != nil {
		t.Fatal(err)
	}
	if text := r.text(r.read("order-17")); !strings.Contains(text, "1 transaction that has written to the table and not ended, the oldest since") {
		t.Errorf("with an open transaction:\n%s", text)
	}
}

// Payloads are shown to who asks for them, and may read them.
func TestRead_Payload(t *testing.T) {
	t.Parallel()
	r := working(t)
	r.messages(1)
	report := r.read("k1")
	if d := report.Message.Details; d == nil || d.Payload != nil || d.PayloadBytes != len(`{"secret": "payload"}`) || d.Transaction == "" {
		t.Errorf("details are %+v", d)
	}
	r.cfg.Payload = true
	report = r.read("k1")
	var text strings.Builder
	if err := report.Print(&text); err != nil || !strings.Contains(text.String(), `{"secret": "payload"}`) {
		t.Errorf("%v, the text is\n%s", err, &text)
	}
	if got := string(report.Message.Details.Payload); got != `{"secret": "payload"}` {
		t.Errorf("the payload is %s", got)
	}
}

// The roles that grants print makes may ask; who may not is told what is missing.
func TestRead_Rights(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(1)
	database := r.conn.Config().Database
	grants := schema.GrantsConfig{Schema: "outbox", Database: database, Application: "app_" + database, Relay: "relay_" + database, Monitoring: "monitor_" + database}
	var sql strings.Builder
	if err := schema.Grants(&sql, grants); err != nil {
		t.Fatal(err)
	}
	if _, err := r.conn.PgConn().Exec(t.Context(), sql.String()).ReadAll(); err != nil {
		t.Fatal(err)
	}
	admin := pgtest.Connect(t, r.conn.Config().ConnString())
	defer func() {
		for _, role := range []string{grants.Application, grants.Relay, grants.Monitoring} {
			if _, err := admin.PgConn().Exec(context.Background(), "drop owned by "+role+"; drop role "+role).ReadAll(); err != nil {
				t.Error(err)
			}
		}
	}()
	for _, c := range []struct {
		role             string
		details, payload string // what is refused, empty if nothing is
	}{{grants.Relay, "", ""}, {grants.Monitoring, "", "table messages"}, {grants.Application, "table relays", "table relays"}} {
		r.exec(`set role ` + c.role)
		for payload, refused := range map[bool]string{false: c.details, true: c.payload} {
			r.cfg.Payload = payload
			report, err := explain.Read(t.Context(), r.conn, r.cfg, "k1")
			switch {
			case refused == "" && err != nil, refused != "" && (err == nil || !strings.Contains(err.Error(), "permission denied for "+refused)):
				t.Errorf("%s, payload %t: %v, want refused: %q", c.role, payload, err, refused)
			case err == nil && (report.Message.Details != nil) != (c.role == grants.Relay):
				t.Errorf("%s: details are %+v", c.role, report.Message.Details)
			}
		}
		r.exec(`reset role`)
	}
}

// No look reads a table from end to end.
func TestRead_ReadsKeysOnly(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(3000)
	r.exec(`insert into outbox.deferred (message_id, queue, ordering_key, reason) select id, queue, ordering_key, 'held' from outbox.messages`)
	report := r.read("k2999")
	if report.Lane.Before != 2998 || report.Lane.InQueue != 2998 || report.Lane.First.MessageID != 1 {
		t.Errorf("the lane is %+v", report.Lane)
	}
	r.read("order-17")
	r.read("2")
	observer := pgtest.Connect(t, r.conn.Config().ConnString())
	_ = r.conn.Close(t.Context()) // a session's statistics are complete when it has ended
	pgtest.Eventually(t, time.Minute, func() error {
		var looks, scans int64
		err := observer.QueryRow(t.Context(), `select coalesce(sum(idx_scan) filter (where relname = 'dispatched'), 0), sum(seq_scan)
			from pg_stat_user_tables where schemaname = 'outbox' and relname in ('messages', 'dispatched', 'deferred', 'dead_letters', 'withdrawn', 'queues')`).Scan(&looks, &scans)
		if err == nil && looks < 2 {
			err = fmt.Errorf("%d looks by key", looks)
		}
		if err == nil && scans > 1 { // the insert of the test itself
			t.Errorf("%d scans of whole tables", scans)
		}
		return err
	})
}

func TestRead_LockedTable(t *testing.T) {
	t.Parallel()
	r := working(t)
	r.messages(1)
	other := pgtest.Connect(t, r.conn.Config().ConnString())
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `lock table outbox.deferred in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	if _, err := explain.Read(t.Context(), r.conn, r.cfg, "1"); err == nil || !strings.Contains(err.Error(), "lock timeout") {
		t.Errorf("got %v", err)
	}
}

// What differs from run to run.
var transaction = regexp.MustCompile(`number \d+`)

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)

// Programs read the JSON: a change of the golden file is a change for them.
func TestReport_Golden(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.exec(`insert into outbox.messages (key, queue, ordering_key, payload, delay_seconds, created_at) values ('k1', 'orders', 'a', '{}', null, '2026-03-01 12:00:00+00'), ('k2', 'orders', 'a', '{}', 30, '2026-03-01 12:00:01+00')`)
	r.exec(`insert into outbox.deferred (message_id, queue, ordering_key, reason, deferred_at, attempts, charged, last_status, last_error, unknown_since)
		values (1, 'orders', 'a', 'transient', '2026-03-01 12:00:05+00', 3, 1, 503, 'service unavailable', '2026-03-01 12:00:02+00'), (2, 'orders', 'a', 'held', '2026-03-01 12:00:05+00', 0, 0, null, null, null)`)
	r.exec(`update outbox.deferred set deferred_at = '2026-03-01 12:00:05+00'`)
	report := r.read("2")
	report.Message.Details.Transaction = "734"
	report.At = time.Date(2026, 3, 1, 12, 1, 0, 0, time.UTC)
	document, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/golden/explain.json", transaction.ReplaceAllString(times.ReplaceAllString(string(document), "TIME"), "number 734")+"\n")
	report = r.read("1")
	report.Message.Details.Transaction = "734"
	golden.Compare(t, "testdata/golden/explain.txt", transaction.ReplaceAllString(r.text(report), "number 734"))
}
