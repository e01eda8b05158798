package verify_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/internal/golden"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/verify"
	"github.com/outbox-relay/outbox-relay/schema"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

// rig is a migrated database with messages.
type rig struct {
	t    *testing.T
	conn *pgx.Conn
	cfg  verify.Config
}

func setup(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t}
	r.conn = pgtest.Connect(t, pgtest.Migrated(t))
	r.cfg = verify.Config{Schema: "outbox", Slot: "slot_" + r.conn.Config().Database}
	return r
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.conn.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// messages writes n messages, an hour old, and dispatches them all.
func (r *rig) messages(n int) {
	r.t.Helper()
	r.exec(`insert into outbox.messages (key, queue, payload, created_at)
		select 'k' || i, 'orders', '{}', now() - interval '1 hour' from generate_series(1, $1::int) i`, n)
	r.exec(`insert into outbox.dispatched (message_id, attempts) select id, 1 from outbox.messages`)
}

// slot makes the slot of a relay that has looked through the table.
func (r *rig) slot() {
	r.t.Helper()
	r.exec(`select pg_create_logical_replication_slot($1, 'pgoutput')`, r.cfg.Slot)
	r.exec(`insert into outbox.relays (slot, epoch, reconciled_at) values ($1, 1, now())`, r.cfg.Slot)
}

// stream stands for a relay at work that has come to everything: it has the slot,
// and confirms where the server is.
func (r *rig) stream() {
	r.t.Helper()
	r.slot()
	reader := r.reader()
	writer := pgtest.Connect(r.t, r.conn.Config().ConnString())
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	for what, loop := range map[string]func() error{
		"follow the WAL": func() error { return follow(ctx, reader) },
		"write WAL":      func() error { return commit(ctx, writer) }, // what was written last is flushed
	} {
		loops.Go(func() {
			if err := loop(); ctx.Err() == nil {
				r.t.Errorf("%s: %v", what, err)
			}
		})
	}
	r.t.Cleanup(func() { cancel(); loops.Wait() })
}

// reader is a connection that has begun to read the slot.
func (r *rig) reader() *pgconn.PgConn {
	r.t.Helper()
	config, err := pgconn.ParseConfig(r.conn.Config().ConnString())
	if err != nil {
		r.t.Fatal(err)
	}
	config.RuntimeParams["replication"], config.RuntimeParams["wal_sender_timeout"] = "database", "0"
	conn, err := pgconn.ConnectConfig(r.t.Context(), config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	start := "START_REPLICATION SLOT " + r.cfg.Slot + " LOGICAL 0/0 (proto_version '1', publication_names '" + schema.DefaultPublication + "')"
	conn.Frontend().Send(&pgproto3.Query{String: start})
	if err := conn.Frontend().Flush(); err != nil {
		r.t.Fatal(err)
	}
	switch message, err := conn.ReceiveMessage(r.t.Context()); message.(type) {
	case *pgproto3.CopyBothResponse:
	default:
		r.t.Fatalf("begin to read the slot: %T, %v", message, err)
	}
	return conn
}

// follow confirms each position that the server says it has come to.
func follow(ctx context.Context, conn *pgconn.PgConn) error {
	for {
		message, err := conn.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *pgproto3.ErrorResponse:
			return pgconn.ErrorResponseToPgError(m)
		case *pgproto3.CopyData:
			if m.Data[0] != 'k' { // a keepalive comes after the messages
				continue
			}
			status := slices.Concat([]byte{'r'}, m.Data[1:9], m.Data[1:9], m.Data[1:9], make([]byte, 9))
			conn.Frontend().Send(&pgproto3.CopyData{Data: status})
			if err := conn.Frontend().Flush(); err != nil {
				return err
			}
		}
	}
}

// commit commits something again and again.
func commit(ctx context.Context, conn *pgx.Conn) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if _, err := conn.Exec(ctx, `select pg_logical_emit_message(true, 'test', 'a commit')`); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *rig) run() *verify.Report {
	r.t.Helper()
	report, err := verify.Run(r.t.Context(), r.conn, r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return report
}

// expect runs and compares what is counted and found.
func (r *rig) expect(want verify.Counts, faults ...verify.Fault) *verify.Report {
	r.t.Helper()
	report := r.run()
	got := report.Counts
	got.From, got.To = 0, 0
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("counts (-want +got)\n%s", diff)
	}
	if faults == nil {
		faults = []verify.Fault{}
	}
	if diff := cmp.Diff(faults, report.Examples); diff != "" {
		r.t.Errorf("faults (-want +got)\n%s", diff)
	}
	if report.OK != (len(faults) == 0) {
		r.t.Errorf("ok is %t with %d faults", report.OK, len(faults))
	}
	return report
}

func TestRun_Empty(t *testing.T) {
	t.Parallel()
	r := setup(t)
	report := r.expect(verify.Counts{})
	if report.Summary != "0 messages, unaccounted 0: each has one outcome" {
		t.Errorf("the sentence is %q", report.Summary)
	}
}

// Every state that a message may be in.
func TestRun_AllIsWell(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.slot()
	r.messages(20)
	r.exec(`delete from outbox.dispatched where message_id in (1, 2, 3, 4, 5, 6, 7, 8)`)
	r.exec(`insert into outbox.deferred (message_id, queue, reason) values (1, 'orders', 'transient'), (2, 'orders', 'held')`)
	r.exec(`insert into outbox.dead_letters (message_id, attempts, reason) values (3, 1, 'refused'), (4, 1, 'refused'), (5, 1, 'discarded')`)
	r.exec(`insert into outbox.deferred (message_id, queue, reason, not_before) values (4, 'orders', 'dead_letter', null), (5, 'orders', 'dead_letter', now())`)
	r.exec(`insert into outbox.deferred (message_id, queue, reason) values (6, 'orders', 'held')`)
	r.exec(`insert into outbox.withdrawn (message_id) values (7), (8)`)
	r.exec(`insert into outbox.dead_letters (message_id, attempts, reason) values (8, 1, 'refused')`)
	r.exec(`delete from outbox.messages where id in (6, 7, 8, 9)`)
	r.exec(`insert into outbox.messages (key, queue, payload) values ('young', 'orders', '{}')`)
	want := verify.Counts{
		Messages: 17, Dispatched: 11, Deferred: 2, DeadLetters: 3, InFlight: 1,
		Withdrawn: 2, DispatchedDeleted: 1, DeferredDeleted: 1, DeadDeleted: 1,
	}
	report := r.expect(want)
	if report.Batches != 1 || report.Late != 0 || !strings.HasSuffix(report.Summary, "each has one outcome or waits, and no relay is streaming; 1 waits") {
		t.Errorf("got %d batches, %d late: %s", report.Batches, report.Late, report.Summary)
	}
	r.cfg.Batch, r.cfg.Ranges = 3, true
	report = r.expect(want)
	var sum verify.Counts
	for i, c := range report.Ranges {
		sum.Messages += c.Messages
		if i > 0 && c.From != report.Ranges[i-1].To+1 {
			t.Errorf("range %d begins with %d after %d", i, c.From, report.Ranges[i-1].To)
		}
	}
	if report.Batches < 6 || sum.Messages != want.Messages {
		t.Errorf("%d messages in %d batches", sum.Messages, report.Batches)
	}
}

// One test for each kind of damage.
func TestRun_Damage(t *testing.T) {
	t.Parallel()
	all := verify.Counts{Messages: 10, Dispatched: 10}
	less := verify.Counts{Messages: 10, Dispatched: 9}
	for _, c := range []struct {
		name, sql string
		counts    verify.Counts
		fault     verify.Fault
	}{
		{"a mark was deleted", `delete from outbox.dispatched where message_id = 4`, less, verify.Fault{MessageID: 4, Kind: verify.Unaccounted}},
		{
			"a deferred row was deleted", `with d as (delete from outbox.dispatched where message_id = 4)
			insert into outbox.withdrawn (message_id) values (40)`,
			verify.Counts{Messages: 10, Dispatched: 9, Withdrawn: 1},
			verify.Fault{MessageID: 4, Kind: verify.Unaccounted},
		},
		{
			"dispatched and deferred", `insert into outbox.deferred (message_id, queue, reason) values (5, 'orders', 'held')`, all,
			verify.Fault{MessageID: 5, Kind: verify.TwoOutcomes, Outcomes: []string{"dispatched", "deferred"}},
		},
		{
			"dispatched and dead", `insert into outbox.dead_letters (message_id, attempts, reason) values (5, 1, 'refused')`, all,
			verify.Fault{MessageID: 5, Kind: verify.TwoOutcomes, Outcomes: []string{"dispatched", "dead letter"}},
		},
		{
			"dead and waiting", `with d as (delete from outbox.dispatched where message_id = 5),
				w as (insert into outbox.deferred (message_id, queue, reason) values (5, 'orders', 'transient'))
			insert into outbox.dead_letters (message_id, attempts, reason) values (5, 1, 'refused')`,
			verify.Counts{Messages: 10, Dispatched: 9, DeadLetters: 1},
			verify.Fault{MessageID: 5, Kind: verify.TwoOutcomes, Outcomes: []string{"dead letter", "deferred"}},
		},
		{
			"two outcomes of a message that is gone", `with d as (delete from outbox.messages where id = 5)
			insert into outbox.withdrawn (message_id) values (5)`,
			verify.Counts{Messages: 9, Dispatched: 9, Withdrawn: 1, DispatchedDeleted: 1},
			verify.Fault{MessageID: 5, Kind: verify.TwoOutcomes, Outcomes: []string{"dispatched", "withdrawn"}},
		},
		{
			"a lane that waits for nothing", `with d as (delete from outbox.dispatched where message_id = 6)
			insert into outbox.deferred (message_id, queue, reason) values (6, 'orders', 'dead_letter')`,
			verify.Counts{Messages: 10, Dispatched: 9, Deferred: 1},
			verify.Fault{MessageID: 6, Kind: verify.NoDeadLetter, Outcomes: []string{"deferred"}},
		},
		{
			"withdrawn and there", `with d as (delete from outbox.dispatched where message_id = 7)
			insert into outbox.withdrawn (message_id) values (7)`,
			verify.Counts{Messages: 10, Dispatched: 9, InFlight: 1, Withdrawn: 1},
			verify.Fault{MessageID: 7, Kind: verify.WithdrawnAndThere, Outcomes: []string{"withdrawn"}},
		},
		{
			"the mark of an earlier message", `update outbox.dispatched set dispatched_at = now() - interval '2 hours' where message_id = 8`, all,
			verify.Fault{MessageID: 8, Kind: verify.OlderOutcome, Outcomes: []string{"dispatched"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			r.stream()
			r.messages(10)
			r.exec(c.sql)
			if c.fault.Outcomes == nil {
				c.fault.Outcomes = []string{}
			}
			report := r.expect(c.counts, c.fault)
			if report.Faults[c.fault.Kind] != 1 {
				t.Errorf("counted are %v", report.Faults)
			}
			var text strings.Builder
			if err := report.Print(&text); err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("outbox-relay explain %d\n", c.fault.MessageID); !strings.Contains(text.String(), want) {
				t.Errorf("the text lacks %q:\n%s", want, &text)
			}
		})
	}
}

// Without a relay at work, old messages wait: that is no loss.
func TestRun_NobodyAtWork(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(5)
	r.exec(`delete from outbox.dispatched`)
	report := r.expect(verify.Counts{Messages: 5, InFlight: 5})
	if report.Late != 5 || report.Mover != "no relay has run yet" || !strings.HasSuffix(report.Summary, "each has one outcome or waits, and no relay has run yet; 5 wait, 5 of them for long") {
		t.Errorf("late are %d: %s", report.Late, report.Summary)
	}
}

// What gets its outcome between the two looks is no fault, whatever its age. Nor
// is anything while a slot is new, and the relay has not looked at the table.
func TestRun_LooksTwice(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.stream()
	r.messages(5)
	r.exec(`delete from outbox.dispatched where message_id in (2, 3)`)
	r.cfg.GoOn = func() bool { // asked after the first look
		r.exec(`insert into outbox.dispatched (message_id, attempts) values (2, 1)`)
		return true
	}
	report := r.expect(verify.Counts{Messages: 5, Dispatched: 3, InFlight: 1},
		verify.Fault{MessageID: 3, Kind: verify.Unaccounted, Outcomes: []string{}})
	if report.Late != 0 {
		t.Errorf("%d are late", report.Late)
	}
	r.exec(`update outbox.relays set reconciled_at = null`)
	r.cfg.GoOn, r.cfg.Wait = nil, time.Second
	if report := r.expect(verify.Counts{Messages: 5, Dispatched: 4, InFlight: 1}); report.Late != 1 {
		t.Errorf("with a new slot %d are late, want 1", report.Late)
	}
}

func TestRun_Ranges(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(100)
	r.exec(`alter table outbox.messages disable trigger all`)
	r.exec(`update outbox.messages set created_at = now() - (100 - id) * interval '1 hour'`)
	r.cfg.From, r.cfg.To = 10, 19
	r.expect(verify.Counts{Messages: 10, Dispatched: 10})
	r.cfg = verify.Config{Schema: "outbox", Slot: r.cfg.Slot, Since: 5 * time.Hour}
	if report := r.run(); report.Messages != 6 {
		t.Errorf("%d messages since then, want 6", report.Messages)
	}
	r.cfg.Since = 0
	r.cfg.From = 1000
	r.expect(verify.Counts{})
}

// A relay that polls has no position: its messages are looked at until none of
// them gets an outcome any more, and no transaction keeps them back.
func TestRun_Poll(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.cfg.Wait = 3 * time.Second
	r.messages(5)
	r.exec(`insert into outbox.relays (slot, epoch, holder, version, confirmed_lsn) values ($1, 3, 'db1:4711', 'v1.2.3', '0/0')`, r.cfg.Slot)
	r.exec(`delete from outbox.dispatched where message_id = 2`)
	r.exec(`select pg_advisory_lock(hashtextextended($1, 0))`, r.cfg.Slot)
	writer := pgtest.Connect(t, r.conn.Config().ConnString())
	tx, err := writer.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `insert into outbox.messages (key, queue, payload) values ('open', 'orders', '{}')`); err != nil {
		t.Fatal(err)
	}
	if report := r.expect(verify.Counts{Messages: 5, Dispatched: 4, InFlight: 1}); report.Late != 1 {
		t.Errorf("late are %d, want 1", report.Late)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.expect(verify.Counts{Messages: 5, Dispatched: 4}, verify.Fault{MessageID: 2, Kind: verify.Unaccounted, Outcomes: []string{}})
}

// No batch reads a table from end to end.
func TestRun_ReadsKeysOnly(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(20_000)
	r.cfg.Batch = 1000
	r.exec(`analyze outbox.messages`) // the others stay as they are for the planner: empty
	r.exec(`delete from outbox.dispatched where message_id % 1000 = 0`)
	if report := r.run(); report.Batches != 20 || report.Late != 20 {
		t.Errorf("%d batches, %d late", report.Batches, report.Late)
	}
	pgtest.Eventually(t, time.Minute, func() error { // statistics come late
		var seen, scans int64
		err := r.conn.QueryRow(t.Context(), `select sum(idx_scan), sum(seq_scan) from pg_stat_user_tables
			where schemaname = 'outbox' and relname in ('dispatched', 'messages') and idx_scan > 0`).Scan(&seen, &scans)
		if err == nil && seen < 40 {
			err = errors.New("the statistics are not there yet")
		}
		if err == nil && scans > 8 { // those of the test itself: copying, deleting, analyzing
			t.Errorf("%d scans of whole tables", scans)
		}
		return err
	})
}

func TestRun_Interrupted(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := verify.Run(ctx, r.conn, r.cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The roles that grants print makes may look; who may not is told what is missing.
func TestRun_Rights(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(3)
	database := r.conn.Config().Database
	var sql strings.Builder
	grants := schema.GrantsConfig{Schema: "outbox", Database: database, Relay: "relay_" + database, Monitoring: "monitor_" + database}
	if err := schema.Grants(&sql, grants); err != nil {
		t.Fatal(err)
	}
	if _, err := r.conn.PgConn().Exec(t.Context(), sql.String()).ReadAll(); err != nil {
		t.Fatal(err)
	}
	admin := pgtest.Connect(t, r.conn.Config().ConnString())
	defer func() {
		for _, role := range []string{grants.Relay, grants.Monitoring} {
			if _, err := admin.PgConn().Exec(context.Background(), "drop owned by "+role+"; drop role "+role).ReadAll(); err != nil {
				t.Error(err)
			}
		}
	}()
	for _, role := range []string{grants.Relay, grants.Monitoring} {
		r.exec(`set role ` + role)
		r.expect(verify.Counts{Messages: 3, Dispatched: 3})
	}
	if _, err := admin.Exec(t.Context(), `revoke select on outbox.withdrawn from `+grants.Monitoring); err != nil {
		t.Fatal(err)
	}
	if _, err := verify.Run(t.Context(), r.conn, r.cfg); err == nil || !strings.Contains(err.Error(), "permission denied for table withdrawn") {
		t.Errorf("without a right: %v", err)
	}
	r.exec(`reset role`)
}

func TestReport_Print(t *testing.T) {
	t.Parallel()
	report := &verify.Report{
		SchemaVersion: 1, Summary: "1000 messages, unaccounted 1, 2 other faults", Seconds: 1.25, Batches: 2,
		Counts: verify.Counts{
			From: 1, To: 1010, Messages: 1000, Dispatched: 980, Deferred: 10, DeadLetters: 3, InFlight: 6,
			Withdrawn: 2, DispatchedDeleted: 4, DeferredDeleted: 1, DeadDeleted: 1,
		},
		Late: 5, Unaccounted: 1,
		Faults: map[verify.Kind]int64{verify.Unaccounted: 1, verify.TwoOutcomes: 2},
		Examples: []verify.Fault{
			{MessageID: 4, Kind: verify.Unaccounted, Outcomes: []string{}},
			{MessageID: 7, Kind: verify.TwoOutcomes, Outcomes: []string{"dispatched", "deferred"}},
		},
		Ranges: []verify.Counts{{From: 1, To: 500, Messages: 500, Dispatched: 500}, {From: 501, To: 1010, Messages: 500, Dispatched: 480, Deferred: 10, DeadLetters: 3, InFlight: 7}},
		Mover:  "active since 2026-03-01T09:00:00Z (db1:4711, epoch 3)",
	}
	var got strings.Builder
	if err := report.Print(&got); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/golden/verify.txt", got.String())
}
