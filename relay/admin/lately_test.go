package admin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/blocker"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

// warned is a test of one warning.
type warned struct {
	name   string
	change func(*relay.State)
	report *status.Report
	want   string // the warning as a line, empty for none
}

func (w *warned) run(t *testing.T) {
	t.Helper()
	t.Run(w.name, func(t *testing.T) {
		t.Parallel()
		state := idle()
		w.change(&state)
		lines := strings.Split(strings.TrimSpace(admin.Ready(defaults(), &state, w.report).String()), "\n")
		if got := strings.Join(lines[1:], "\n"); got != w.want {
			t.Errorf("got %q, want %q", got, w.want)
		}
	})
}

// dead is a report with so many dead letters, a second old.
func dead(n int64, oldest float64) *status.Report {
	r := &status.Report{Looked: *ago(time.Second)}
	if n > 0 {
		r.DeadLetters = status.Count{Count: n, OldestSeconds: &oldest}
	}
	return r
}

// The warning speaks of the dead letters that there are, whoever made them, and is
// silent when somebody has dealt with them all.
func TestReady_DeadLetters(t *testing.T) {
	t.Parallel()
	nothing := func(*relay.State) {}
	died := func(d time.Duration) func(*relay.State) {
		return func(s *relay.State) { s.Totals.DeadLetters, s.Totals.LastDeadLetter = 9, ago(d) }
	}
	many := dead(100_000, 1)
	many.DeadLetters.AtLeast = true
	old := dead(1, 60)
	old.Looked = *ago(40 * time.Second)
	for _, w := range []warned{
		{"none", nothing, dead(0, 0), ""},
		{"one", nothing, dead(1, 119), "warn dead_letters: 1 dead letter needs a person, the oldest for 2m0s (outbox-relay dead-letters list)"},
		{"some, since days", died(48 * time.Hour), dead(8, 172_799), "warn dead_letters: 8 dead letters need a person, the oldest for 48h0m0s (outbox-relay dead-letters list)"},
		{"very many", nothing, many, "warn dead_letters: at least 100000 dead letters need a person, the oldest for 2s (outbox-relay dead-letters list)"},
		{"by a look a while ago", nothing, old, "warn dead_letters: 1 dead letter needs a person, the oldest for 1m40s, as of 40s ago (outbox-relay dead-letters list)"},
		{"somebody has dealt with them", died(time.Minute), dead(0, 0), ""},
		{"one since the look", died(0), dead(0, 0), "warn dead_letters: a message became a dead letter 0s ago (outbox-relay dead-letters list)"},
		{
			"the database does not answer", died(time.Minute), nil,
			"warn dead_letters: 9 messages became dead letters since the start, the last one 1m0s ago; " +
				"Postgres has not said whether they still need a person (outbox-relay dead-letters list)",
		},
		{"nor does it, for long", died(time.Hour), nil, ""},
		{"a standby", func(s *relay.State) { standby(s) }, dead(1, 119), "warn dead_letters: 1 dead letter needs a person, the oldest for 2m0s (outbox-relay dead-letters list)"},
	} {
		w.run(t)
	}
}

// The warning says whether something is still to be done, and goes when it says no.
func TestReady_Recovered(t *testing.T) {
	t.Parallel()
	found := func(sweep *relay.SweepState, more ...func(*relay.State)) func(*relay.State) {
		return func(s *relay.State) {
			s.Totals.Recovered, s.Totals.LastRecovered, s.Sweep = 50, ago(time.Minute), sweep
			for _, change := range more {
				change(s)
			}
		}
	}
	next := now.Add(20 * time.Second)
	sweep := func(clean int) *relay.SweepState {
		return &relay.SweepState{Passed: ago(0), Next: &next, Clean: clean, Found: 42}
	}
	const (
		begin = "warn recovered: 42 messages were found in the table that the stream had not shown, the last 1m0s ago"
		later = " (nothing is lost; outbox-relay doctor looks for the cause. This goes when two sweeps in a row find none)"
	)
	doubts := func(s *relay.State) { s.Source.Doubts = "a row filter" }
	filter := "warn publication: a row filter (outbox-relay doctor prints what mends it)\n"
	for _, w := range []warned{
		{"just now", found(sweep(0)), nil, begin + "; the next sweep in 20.0 s" + later},
		{"under way", found(&relay.SweepState{Found: 42}), nil, begin + "; a sweep looks for them now" + later},
		{"none since", found(sweep(1)), nil, begin + "; the sweep after that found none; the next sweep in 20.0 s" + later},
		{"none since twice", found(sweep(2)), nil, ""},
		{"the cause is there", found(sweep(0), doubts), nil, filter + begin + "; the cause is still there; the next sweep in 20.0 s (outbox-relay doctor prints what mends it)"},
		{"it is, though nothing came", found(sweep(9), doubts), nil, filter + begin + "; the cause is still there; the next sweep in 20.0 s (outbox-relay doctor prints what mends it)"},
		{
			"the slot was moved", found(sweep(0), func(s *relay.State) { s.SlotMoved = true }), nil,
			begin + "; somebody had moved the slot past them; the next sweep in 20.0 s (find out who calls pg_replication_slot_advance; this goes when two sweeps in a row find none)",
		},
		{"in an earlier session", found(&relay.SweepState{Next: &next}), nil, strings.Replace(begin, "42", "50", 1) + "; the next sweep in 20.0 s" + later},
		{"without sweeps", found(nil), nil, strings.Replace(begin, "42", "50", 1) + later},
		{"long ago", found(sweep(0), func(s *relay.State) { s.Totals.LastRecovered = ago(time.Hour) }), nil, ""},
	} {
		w.run(t)
	}
}

// Messages that the relay does not have are told of when they have been there for a
// while.
func TestReady_Unseen(t *testing.T) {
	t.Parallel()
	next := now.Add(20 * time.Second)
	sweeps := func(s *relay.State) { s.Sweep = &relay.SweepState{Next: &next} }
	report := func(oldest float64, full bool) *status.Report {
		return &status.Report{Looked: now, Unseen: &status.Unseen{
			Count: 300, OldestSeconds: &oldest, MemoryFull: full, Queues: []status.QueueCount{{Queue: "mails", Count: 300}},
		}}
	}
	const begin = "warn unseen: 300 messages have no outcome and are not in the relay's memory (mails 300), the oldest 40.0 s old; "
	for _, w := range []warned{
		{"none", sweeps, &status.Report{Looked: now, Unseen: &status.Unseen{}}, ""},
		{"nobody knows", sweeps, &status.Report{Looked: now}, ""},
		{"of the last seconds", sweeps, report(9, false), ""},
		{
			"the stream does not show them", sweeps, report(40, false),
			begin + "what the stream never shows, the sweep finds: the next sweep in 20.0 s (outbox-relay doctor says whether the publication hides them (D20, D21))",
		},
		{
			"the sweep found them since", func(s *relay.State) {
				s.Sweep = &relay.SweepState{Next: &next, Clean: relay.CleanPasses}
				s.Totals.LastRecovered = new(now.Add(time.Second))
			}, report(40, false), "",
		},
		{
			"there is no stream", func(s *relay.State) { s.Polls = true }, report(40, false),
			strings.TrimSuffix(begin, "; ") + " (outbox-relay doctor names the transactions that have been open for long (D33))",
		},
		{
			"outcomes cannot be written", func(s *relay.State) { sweeps(s); s.Writer.Trouble = trouble("lock timeout", time.Minute) }, report(40, true),
			"fail writer: outcomes cannot be written, so nothing new is sent: lock timeout\n" +
				begin + "intake stands still because outcomes cannot be written, they follow when they can",
		},
		{"no room", sweeps, report(40, true), begin + "the memory is full, they follow as it empties"},
	} {
		w.run(t)
	}
}

// A standby is ready while another relay is only making the slot, and says that
// nothing moves, and for what it waits.
func TestReady_HolderWaits(t *testing.T) {
	t.Parallel()
	making := func(since *time.Time, awaits *blocker.Transaction) *status.Report {
		m := &status.Making{PID: 4711, Since: since, Awaits: awaits, Hint: awaits.Hint()}
		return &status.Report{At: *ago(-time.Hour), Looked: now, Mover: status.Mover{Slot: &status.Slot{Active: true, Making: m}}} // the server's clock is ahead
	}
	began := func(d time.Duration) *time.Time { return ago(d - time.Hour) }
	open := 420.0
	awaits := &blocker.Transaction{GID: "settlement", Database: "shop", Owner: "billing", OpenSeconds: &open}
	end := " (" + awaits.Hint() + ")"
	for _, w := range []warned{
		{"nobody knows", standby, nil, ""},
		{"the slot is there", standby, &status.Report{Looked: now, Mover: status.Mover{Slot: &status.Slot{Active: true}}}, ""},
		{"it is made just now", standby, making(began(9*time.Second), awaits), ""},
		{
			"it waits", standby, making(began(5*time.Minute), awaits),
			"warn holder_waits: no relay is streaming: its slot is being made since 2026-03-01T12:55:00Z (process 4711) and waits for " +
				"prepared transaction 'settlement' (database shop, role billing), open for 7m0s" + end,
		},
		{
			"since when is hidden", standby, making(nil, awaits),
			"warn holder_waits: no relay is streaming: its slot is being made (process 4711) and waits for " +
				"prepared transaction 'settlement' (database shop, role billing), open for 7m0s" + end,
		},
		{"this one has the slot", func(*relay.State) {}, making(began(5*time.Minute), awaits), ""},
	} {
		w.run(t)
	}
}

// Keys that wait for a person are told apart from those that wait for another
// attempt.
func TestReady_Held(t *testing.T) {
	t.Parallel()
	held := func(s *relay.State) { s.Router.Queues[0].HeldLanes = 3 }
	rows := &status.Report{Looked: now, DeferredReasons: []status.Reason{
		{Reason: "held", Count: 9, Queues: []status.ReasonQueue{{Queue: "orders", Count: 9}}},
		{Reason: "dead_letter", Count: 3, Queues: []status.ReasonQueue{{Queue: "orders", Count: 2}, {Queue: "mails", Count: 1}}},
	}}
	for _, w := range []warned{
		{"nobody knows", held, nil, "warn held: queue orders: 3 ordering keys wait behind a message that failed (outbox-relay deferred keys --queue orders)"},
		{
			"two behind dead letters", held, rows,
			"warn held: queue orders: 3 ordering keys wait, 2 of them behind a dead letter until a person has decided about it (outbox-relay dead-letters list --queue orders)",
		},
	} {
		w.run(t)
	}
}
