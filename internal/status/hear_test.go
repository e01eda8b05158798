package status_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
)

// moving is the state of a relay that has the slot, and room in its memory.
func (b bundle) moving(change func(*relay.State)) *relay.State {
	at := time.Now()
	s := &relay.State{
		At: at, Phase: relay.Active, Slot: b.slot, Sweep: &relay.SweepState{Next: new(at.Add(20 * time.Second))},
		Router: relay.RouterState{MessagesLimit: 100, BytesLimit: 1000},
	}
	change(s)
	return s
}

// text is the report for people.
func text(t *testing.T, r *status.Report) string {
	t.Helper()
	var text strings.Builder
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// What only the relay knows comes to the front of the sentence.
func TestReport_Hear(t *testing.T) {
	t.Parallel()
	b := setup(t)
	report := b.read(t)
	report.Hear(b.moving(func(*relay.State) {}))
	if report.Breakers == nil || strings.Contains(report.Summary, "paused") || report.RelayError != "" {
		t.Errorf("with all well: %v, %q, %s", report.Breakers, report.RelayError, report.Summary)
	}
	closed := func(class string) relay.GateState { return relay.GateState{Closed: true, Class: class} }
	report.Hear(b.moving(func(s *relay.State) { s.Router.Endpoint = closed("transient") }))
	expectSummary(t, report, "no relay has run yet, sending paused to all queues (transient), ")
	report.Hear(b.moving(func(s *relay.State) {
		s.Router.Queues = []relay.QueueState{
			{Name: "a", Gate: closed("queue_closed")},
			{Name: "b", Gate: closed("")},
			{Name: "open"},
			{Name: "c", Gate: closed("")},
			{Name: "d", Gate: closed("")},
		}
	}))
	expectSummary(t, report, "sending paused to a (queue_closed), b (), c (), others, ")
}

// A relay that does not move these messages knows nothing of them.
func TestReport_Hear_AnotherRelay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for want, change := range map[string]func(*relay.State){
		`one of slot "another"`:                func(s *relay.State) { s.Slot = "another" },
		"moves no messages now: it is standby": func(s *relay.State) { s.Phase = relay.Standby },
		"on another server (system 4711)":      func(s *relay.State) { s.System = "4711" },
	} {
		report := b.read(t)
		report.Hear(b.moving(change))
		if report.Breakers != nil || report.Unseen != nil || !strings.Contains(report.RelayError, want) {
			t.Errorf("got %v, %v, %q, want %q", report.Breakers, report.Unseen, report.RelayError, want)
		}
		if got := text(t, report); !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, got)
		}
	}
}

// What a relay says against its health matters where it is one of the slot and the
// server.
func TestReport_Concerns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var here string
	if err := b.conn.QueryRow(t.Context(), `select system_identifier::text from pg_control_system()`).Scan(&here); err != nil {
		t.Fatal(err)
	}
	report := b.read(t)
	for name, test := range map[string]struct {
		change func(*relay.State)
		want   bool
	}{
		"it has not asked a server":  {func(*relay.State) {}, true},
		"it is here":                 {func(s *relay.State) { s.System = here }, true},
		"it is here and stands by":   {func(s *relay.State) { s.System, s.Phase = here, relay.Standby }, true},
		"it is on another server":    {func(s *relay.State) { s.System = "4711" }, false},
		"it is of another slot here": {func(s *relay.State) { s.System, s.Slot = here, "another" }, false},
	} {
		if got := report.Concerns(b.moving(test.change)); got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// What has no outcome and is not in memory is told by queue, with what the relay
// does about it. What came in the last seconds is on its way.
func TestReport_Hear_Unseen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.conn.Begin(t.Context()) // now() stands still in it: the last second does not become longer
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `insert into outbox.messages (key, queue, payload, created_at)
		select queue || i, queue, '{}', now() - age from (values ('mails', 300, interval '40 min'), ('orders', 10, interval '30 min'), ('orders', 5, interval '1 s'), ('invoices', 4, interval '0')) v (queue, n, age),
			generate_series(n, 2 * n - 1) i`); err != nil {
		t.Fatal(err)
	}
	report, err := status.ReadIn(t.Context(), tx, "outbox", b.slot)
	if err := errors.Join(err, tx.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	queues := []status.QueueCount{{Queue: "mails", Count: 300}, {Queue: "orders", Count: 15}, {Queue: "invoices", Count: 4}}
	ignored := []cmp.Option{cmpopts.IgnoreUnexported(status.QueueCount{}), cmpopts.IgnoreFields(status.QueueCount{}, "OldestSeconds")}
	if diff := cmp.Diff(queues, report.WithoutOutcomeQueues, ignored...); diff != "" {
		t.Errorf("without outcome (-want +got)\n%s", diff)
	}
	expectSummary(t, report, "319 waiting (oldest 40.")

	orders := []relay.QueueState{{Name: "orders", Live: 7}, {Name: "invoices", Live: 4}}
	report.Hear(b.moving(func(s *relay.State) { s.Router.Queues = orders }))
	u := report.Unseen
	if diff := cmp.Diff([]status.QueueCount{{Queue: "mails", Count: 300}, {Queue: "orders", Count: 3}}, u.Queues, ignored...); diff != "" {
		t.Errorf("unseen (-want +got)\n%s", diff)
	}
	if u.Count != 303 || !u.AtLeast || *u.OldestSeconds < 2400 || *u.OldestSeconds > 2450 || *u.NextSweepSeconds != 20 || u.MemoryFull {
		t.Errorf("unseen: %+v", u)
	}
	if u.Of("mails") != 300 || u.Of("invoices") != 0 || (*status.Unseen)(nil).Of("mails") != 0 {
		t.Errorf("by queue: %d, %d", u.Of("mails"), u.Of("invoices"))
	}
	expectSummary(t, report, "319 waiting (oldest 40.", "), at least 303 of them not in the relay's memory (the next sweep in 20.0 s)")
	if got := text(t, report); !strings.Contains(got, "at least 303 messages have no outcome and are not in the relay's memory (mails 300, orders 3), the oldest 40.") ||
		!strings.Contains(got, "old; what the stream never shows, the sweep finds: the next sweep in 20.0 s\n") {
		t.Errorf("the table is\n%s", got)
	}
}

// Nothing is told of it while the relay has all there is, and no sweep where there
// is none, or where another thing keeps messages.
func TestReport_Hear_UnseenAndNoSweep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.execute(t, `insert into outbox.messages (key, queue, payload, created_at) values ('a', 'orders', '{}', now() - interval '1 minute')`)
	for name, test := range map[string]struct {
		change    func(*relay.State)
		want, not string
	}{
		"in memory": {func(s *relay.State) { s.Router.Queues = []relay.QueueState{{Name: "orders", Live: 1}} }, "1 waiting", "memory"},
		"full":      {func(s *relay.State) { s.Router.Messages = 100 }, "1 message has no outcome and is not in the relay's memory (orders 1)", "sweep"},
		"unwritten": {func(s *relay.State) {
			s.Router.Messages, s.Writer.Trouble = 100, &relay.Trouble{Since: s.At.Add(-10 * time.Second)}
		}, "1 of them not in the relay's memory (intake stands still because outcomes cannot be written)", "sweep"},
		"unwritten for a moment": {func(s *relay.State) {
			s.Writer.Trouble = &relay.Trouble{Since: s.At.Add(-9 * time.Second)}
		}, "the next sweep", "stands still"},
		"polls":    {func(s *relay.State) { s.Sweep = nil }, "1 of them not in the relay's memory, slot", "sweep"},
		"sweeping": {func(s *relay.State) { s.Sweep = &relay.SweepState{} }, "the sweep finds: a sweep looks for them now", "next"},
	} {
		report := b.read(t)
		report.Slot = &status.Slot{RetainedBytes: new(int64(5))}
		report.Hear(b.moving(test.change))
		if got := text(t, report); !strings.Contains(got, test.want) || strings.Contains(got, test.not) {
			t.Errorf("%s: want %q and no %q in\n%s", name, test.want, test.not, got)
		}
	}
}

// When messages are tried next depends on what keeps their queues.
func TestReport_Next(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.execute(t, `insert into outbox.queues (queue, paused) values ('mails', true)`)
	b.execute(t, `insert into outbox.deferred (message_id, queue, reason, not_before) values
		(1, 'mails', 'held', null), (2, 'mails', 'held', null), (3, 'orders', 'held', null), (4, 'orders', 'held', null), (5, 'orders', 'held', null),
		(6, 'orders', 'transient', now() - interval '1 s'), (7, 'mails', 'redriven', now() - interval '1 s'),
		(8, 'mails', 'scheduled', now() + interval '3 hours'), (9, 'mails', 'scheduled', now() - interval '1 s'), (10, 'orders', 'dead_letter', null)`)
	next := func(change func(*relay.State)) map[string]string {
		report := b.read(t)
		report.Hear(b.moving(change))
		found := map[string]string{}
		for i := range report.DeferredReasons {
			r := &report.DeferredReasons[i]
			found[r.Reason] = report.Next(r)
		}
		return found
	}
	want := map[string]string{
		"held": "2 when mails is resumed, 3 with its queue or key", "transient": "due", "redriven": "when mails is resumed",
		"scheduled": "when mails is resumed", "dead_letter": "when a person has decided about it",
	}
	if diff := cmp.Diff(want, next(func(*relay.State) {})); diff != "" {
		t.Errorf("a queue is paused (-want +got)\n%s", diff)
	}
	want["held"], want["transient"] = "3 when orders is back, 2 when mails is resumed", "when orders is back"
	if diff := cmp.Diff(want, next(func(s *relay.State) {
		s.Router.Queues = []relay.QueueState{{Name: "orders", Gate: relay.GateState{Closed: true}}}
	})); diff != "" {
		t.Errorf("the other one is closed (-want +got)\n%s", diff)
	}
	want["held"], want["transient"] = "3 when the endpoint is back, 2 when mails is resumed", "when the endpoint is back"
	if diff := cmp.Diff(want, next(func(s *relay.State) { s.Router.Endpoint.Closed = true })); diff != "" {
		t.Errorf("the endpoint is closed (-want +got)\n%s", diff)
	}
	b.execute(t, `delete from outbox.deferred where message_id = 9`)
	if got := next(func(*relay.State) {})["scheduled"]; got != "in 3.0 h" {
		t.Errorf("what is scheduled for later goes %q", got)
	}
	report := b.read(t)
	if n := report.Of("held", "orders"); n != 3 || report.Of("held", "invoices") != 0 || report.Of("none", "orders") != 0 {
		t.Errorf("%d of orders are held", n)
	}
}

// All counts are of one moment: what becomes deferred meanwhile does not count twice.
func TestSnapshot_IsOfOneMoment(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := pgtest.Connect(t, b.conn.Config().ConnString())
	b.execute(t, `insert into outbox.messages (key, queue, payload) values ('a', 'orders', '{}')`)
	err := status.Snapshot(t.Context(), b.conn, func(tx pgx.Tx) error {
		for range 2 {
			report, err := status.ReadIn(t.Context(), tx, "outbox", b.slot)
			if err != nil {
				return err
			}
			if report.WithoutOutcome.Count != 1 || report.Deferred.Count != 0 {
				t.Errorf("%d without outcome, %d deferred", report.WithoutOutcome.Count, report.Deferred.Count)
			}
			if _, err := other.Exec(t.Context(), `insert into outbox.deferred (message_id, queue, reason) select id, queue, 'held' from outbox.messages on conflict do nothing`); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
