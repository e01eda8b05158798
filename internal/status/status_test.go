package status_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/internal/golden"
	"github.com/outbox-relay/outbox-relay/internal/paused"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/status"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

// bundle is a migrated database and a slot's name that nobody else has.
type bundle struct {
	conn *pgx.Conn
	slot string
}

func setup(t *testing.T) bundle {
	t.Helper()
	conn := pgtest.Connect(t, pgtest.Migrated(t))
	return bundle{conn, "slot_" + conn.Config().Database}
}

func (b bundle) execute(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := b.conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (b bundle) read(t *testing.T) *status.Report {
	t.Helper()
	report, err := status.Read(t.Context(), b.conn, "outbox", b.slot)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func expectSummary(t *testing.T, report *status.Report, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(report.Summary, part) {
			t.Errorf("the sentence lacks %q: %s", part, report.Summary)
		}
	}
}

func TestRead_BeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	report := b.read(t)
	if report.Slot != nil || report.Relay != nil {
		t.Errorf("got %+v", report)
	}
	if want := "no relay has run yet, no message without outcome"; report.Summary != want {
		t.Errorf("the sentence is %q, want %q", report.Summary, want)
	}
}

func TestRead_CountsMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.execute(t, `insert into outbox.messages (key, queue, payload, created_at)
		select 'k' || i, 'orders', '{}', now() - i * interval '1 minute' from generate_series(1, 10) i`)
	b.execute(t, `insert into outbox.dispatched (message_id, attempts) select id, 1 from outbox.messages where key in ('k10', 'k9', 'k1')`)
	b.execute(t, `insert into outbox.deferred (message_id, queue, reason) select id, queue, 'transient' from outbox.messages where key in ('k8', 'k7')`)
	b.execute(t, `insert into outbox.dead_letters (message_id, attempts, reason) select id, 1, 'refused' from outbox.messages where key = 'k6'`)
	report := b.read(t)
	got := []int64{report.WithoutOutcome.Count, report.Deferred.Count, report.DeadLetters.Count}
	if diff := cmp.Diff([]int64{4, 2, 1}, got); diff != "" {
		t.Errorf("without outcome, deferred, dead letters (-want +got)\n%s", diff)
	}
	if age := *report.WithoutOutcome.OldestSeconds; age < 300 || age > 360 {
		t.Errorf("the oldest is %v s old, want a little over 300", age)
	}
	expectSummary(t, report, "4 waiting (oldest 5.", "2 deferred (2 transient)", "1 dead letter")
}

// A creation time that no clock can show does not break the report.
func TestRead_InfiniteTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.execute(t, `insert into outbox.messages (key, queue, payload, created_at)
		values ('a', 'orders', '{}', '-infinity'), ('b', 'orders', '{}', 'infinity'), ('c', 'orders', '{}', now() + interval '1 hour')`)
	report := b.read(t)
	expectSummary(t, report, "3 waiting (oldest 0.0 s)")
}

// What somebody has stopped is said in the first line: no failure tells of it.
func TestRead_PausedQueues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if report := b.read(t); report.PausedQueues == nil || len(report.PausedQueues) > 0 {
		t.Errorf("%v are paused", report.PausedQueues)
	}
	b.execute(t, `insert into outbox.queues (queue, paused) values ('mails', true), ('orders', false)`)
	expectSummary(t, b.read(t), ", mails is paused by hand (since ", " by postgres), no message without outcome")
	b.execute(t, `update outbox.queues set paused_reason = 'ticket 8'`)
	report := b.read(t)
	expectSummary(t, report, ", mails is paused by hand (since ", " by postgres: ticket 8), no message without outcome")
	if len(report.Pauses) != 1 || report.Pauses[0].Queue != "mails" || report.Pauses[0].At == nil || report.Pauses[0].Reason != "ticket 8" {
		t.Errorf("pauses are %+v", report.Pauses)
	}
	b.execute(t, `insert into outbox.queues (queue, paused) values ('a', true), ('b', true), ('c', true)`)
	expectSummary(t, b.read(t), ", a, b, c, others are paused by hand, no message")
}

func TestRead_StopsCounting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.execute(t, `insert into outbox.dead_letters (message_id, attempts, reason) select i, 1, 'refused' from generate_series(1, $1::bigint) i`, status.Bound+10)
	report := b.read(t)
	if d := report.DeadLetters; d.Count != status.Bound || !d.AtLeast {
		t.Errorf("got %+v, want to stop at %d", d, status.Bound)
	}
	expectSummary(t, report, "at least 100000 dead letters")
}

func TestRead_Slot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.execute(t, `insert into outbox.relays (slot, epoch, holder, version, confirmed_lsn) values ($1, 3, 'db1:4711', 'v1.2.3', '0/1234')`, b.slot)
	expectSummary(t, b.read(t), "is gone and no relay is streaming")

	b.execute(t, `select pg_create_logical_replication_slot($1, 'pgoutput')`, b.slot)
	b.execute(t, `insert into outbox.messages (key, queue, payload) values ('a', 'orders', '{}')`)
	report := b.read(t)
	s := report.Slot
	if s == nil || s.Active || *s.RetainedBytes <= 0 || *s.UnconfirmedBytes <= 0 || *s.UnconfirmedBytes > *s.RetainedBytes {
		t.Errorf("the slot is %+v", s)
	}
	if relay := report.Relay; relay.Epoch != 3 || relay.Holder != "db1:4711" || relay.ConfirmedLSN != "0/1234" || relay.ReconciledAt != nil {
		t.Errorf("the relay is %+v", relay)
	}
	expectSummary(t, report, "no relay is streaming", "1 waiting", "of WAL")
}

// fixed is a report with every member set.
func fixed() *status.Report {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	pid, retained, unconfirmed, oldest := 4242, int64(1_258_291), int64(512), 0.4
	limit, active, next, answer := int64(10<<30), at.Add(-3*time.Hour), 12.5, 503
	reconciled, expired, probe := at.Add(-time.Hour), 12.5, at.Add(3*time.Second)
	return &status.Report{
		SchemaVersion: 1, At: at,
		Summary: "active since 2026-03-01T09:00:00Z (db1:4711, epoch 3), 2 waiting (oldest 0.4 s), 3 deferred (2 transient, 1 held), slot keeps 1.2 MiB of 10.0 GiB",
		Mover: status.Mover{
			Relay: &status.Relay{
				Holder: "db1:4711", Version: "v1.2.3", Epoch: 3, ConfirmedLSN: "0/1234",
				UpdatedAt: at.Add(-90 * time.Second), ReconciledAt: &reconciled,
			},
			Slot: &status.Slot{
				Name: "outbox_relay", Active: true, ActivePID: &pid, WALStatus: "reserved",
				RetainedBytes: &retained, UnconfirmedBytes: &unconfirmed, LimitBytes: &limit, ActiveSince: &active,
			},
		},
		WithoutOutcome:       status.Count{Count: 2, OldestSeconds: &oldest},
		WithoutOutcomeQueues: []status.QueueCount{{Queue: "mails", Count: 2, OldestSeconds: &oldest}},
		Unseen: &status.Unseen{
			Count: 1, AtLeast: true, OldestSeconds: &expired, NextSweepSeconds: &next,
			Queues: []status.QueueCount{{Queue: "mails", Count: 1, OldestSeconds: &expired}},
		},
		Deferred:     status.Count{Count: 3, OldestSeconds: &expired},
		DeferredPace: &status.Pace{PerSecond: new(-0.5), SecondsLeft: new(6.0)},
		DeferredReasons: []status.Reason{
			{
				Reason: "transient", Count: 2, OldestSeconds: &expired, NextSeconds: &next, MessageID: 17, LastStatus: &answer, LastError: "service unavailable",
				Queues: []status.ReasonQueue{{Queue: "orders", Count: 2, NextSeconds: &next}},
			},
			{Reason: "held", Count: 1, OldestSeconds: &oldest, MessageID: 18, Queues: []status.ReasonQueue{{Queue: "invoices", Count: 1}}},
		},
		Claims:       status.Claims{Rows: 1200, Bytes: retained, OldestExpiredSeconds: &expired},
		PausedQueues: []string{"invoices"},
		Pauses:       []status.Pause{{Queue: "invoices", Note: paused.Note{At: &active, By: "oncall", Reason: "ticket 8"}}},
		Breakers: []status.Breaker{
			{Class: "endpoint_closed", Since: &active, Text: "status 401"},
			{Queue: "mails", Class: "transient", Since: &active, NextProbe: &probe, Text: "status 503"},
		},
	}
}

// Programs read the JSON: a change of the golden file is a change for them.
func TestReport_JSON(t *testing.T) {
	t.Parallel()
	got, err := json.MarshalIndent(fixed(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/golden/status.json", string(got)+"\n")
}

func TestReport_Print(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	if err := fixed().Print(&got); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/golden/status.txt", got.String())
}

func TestRead_AnotherCluster(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.execute(t, `insert into outbox.relays (slot, system_identifier, timeline, holder, slot_moves)
		select $1, system_identifier, 1, 'host:1', 2 from pg_control_system()`, b.slot)
	report := b.read(t)
	if report.Held != "" || report.Relay.SlotMoves != 2 || report.Relay.Timeline != 1 {
		t.Errorf("on the server of the record: %+v, %+v", report, report.Relay)
	}
	var text strings.Builder
	if err := report.Print(&text); err != nil || !strings.Contains(text.String(), "2 by somebody else") {
		t.Errorf("the slot's moves are not told (%v):\n%s", err, &text)
	}
	b.execute(t, `update outbox.relays set timeline = 7 where slot = $1`, b.slot)
	expectSummary(t, b.read(t), "dispatching is held", "timeline 1 instead of 7")
	b.execute(t, `update outbox.relays set system_identifier = 4711 where slot = $1`, b.slot)
	expectSummary(t, b.read(t), "dispatching is held", "another cluster", "instead of 4711")
}

func TestRead_Claims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if c := b.read(t).Claims; c.Rows != 0 || c.Bytes == 0 || c.OldestExpiredSeconds != nil {
		t.Errorf("before the first claim: %+v", c)
	}
	b.execute(t, `insert into outbox.claims (consumer, event_id, expires_at)
		select 'c', i::text, now() + i * interval '1 minute' from generate_series(-3, 496) i`)
	b.execute(t, `insert into outbox.claims (consumer, event_id, expires_at) values ('c', 'never', 'infinity'), ('c', 'ever', '-infinity')`)
	b.execute(t, `analyze outbox.claims`)
	c := b.read(t).Claims
	if c.Rows != 502 || c.Bytes < 502*40 {
		t.Errorf("of 502 claims: %+v", c)
	}
	if oldest := *c.OldestExpiredSeconds; oldest < 180 || oldest > 240 {
		t.Errorf("the oldest one expired %v s ago, want a little over 180", oldest)
	}
}

// A role that may not see claims sees all the rest.
func TestRead_WithoutRightsOnClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role := pgx.Identifier{"looks " + b.conn.Config().Database}.Sanitize()
	b.execute(t, `insert into outbox.claims (consumer, event_id, expires_at) values ('c', 'e', now() - interval '1 day')`)
	b.execute(t, `create role `+role+` in role pg_monitor`)
	defer b.execute(t, `drop role `+role)
	defer b.execute(t, `drop owned by `+role)
	b.execute(t, `grant usage on schema outbox to `+role)
	b.execute(t, `grant select on outbox.message_status, outbox.relays, outbox.dispatched, outbox.deferred, outbox.dead_letters, outbox.queues to `+role)
	b.execute(t, `set role `+role)
	defer b.execute(t, `reset role`)
	if c := b.read(t).Claims; c.Bytes == 0 || c.OldestExpiredSeconds != nil {
		t.Errorf("got %+v", c)
	}
}

// A relay that polls holds a lock instead of a slot.
func TestRead_Poll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.execute(t, `insert into outbox.relays (slot, epoch, holder, version, confirmed_lsn) values ($1, 3, 'db1:4711', 'v1.2.3', '0/0')`, b.slot)
	report := b.read(t)
	expectSummary(t, report, "no relay is polling")
	if report.Poll != nil {
		t.Errorf("the lock is held by %+v", report.Poll)
	}
	b.execute(t, `select pg_advisory_lock(hashtextextended($1, 0))`, b.slot)
	report = b.read(t)
	expectSummary(t, report, "polling since ", "(db1:4711, epoch 3), no message without outcome")
	if pid := int(b.conn.PgConn().PID()); report.Poll == nil || report.Poll.PID != pid {
		t.Errorf("the lock is held by %+v, want %d", report.Poll, pid)
	}
	var text strings.Builder
	if err := report.Print(&text); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); !strings.Contains(got, "lock ") || strings.Contains(got, "slot") || strings.Contains(got, "recorded") {
		t.Errorf("got\n%s", got)
	}
}

// Why messages are deferred, and which one is first.
func TestRead_Reasons(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.execute(t, `insert into outbox.deferred (message_id, queue, reason, not_before, last_status, last_error) values
		(7, 'orders', 'transient', now() + interval '2 hours', 503, 'first' || chr(27)), (8, 'orders', 'transient', now() + interval '1 hour', 500, 'second'),
		(6, 'mails', 'rate_limited', now(), 429, 'status 429: slow down'),
		(9, 'orders', 'scheduled', now() - interval '1 second', null, null), (10, 'orders', 'held', null, null, null),
		(11, 'orders', 'held', null, null, null), (12, 'orders', 'held', 'infinity', null, null), (13, 'orders', 'recovered', now(), null, null)`)
	report := b.read(t)
	expectSummary(t, report, "8 deferred (3 held, 2 transient, 1 rate_limited, others)")
	byReason := map[string]status.Reason{}
	for _, r := range report.DeferredReasons {
		byReason[r.Reason] = r
	}
	if r := byReason["transient"]; r.MessageID != 7 || *r.LastStatus != 503 || *r.NextSeconds < 3500 || *r.NextSeconds > 3600 {
		t.Errorf("transient: %+v", r)
	}
	if r := byReason["held"]; r.Count != 3 || r.MessageID != 10 || r.NextSeconds != nil || r.LastError != "" {
		t.Errorf("held: %+v", r)
	}
	if r := byReason["scheduled"]; *r.NextSeconds != 0 {
		t.Errorf("scheduled: %+v", r)
	}
	var text strings.Builder
	if err := report.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{", in ", "first: message 7, status 503, first \n", "first: message 6, status 429: slow down\n", "1, due; first: message 9"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, &text)
		}
	}
}
