package metrics

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/internal/tally"
	"github.com/outbox-relay/outbox-relay/internal/verify"
	"github.com/outbox-relay/outbox-relay/relay"
)

var update = flag.Bool("update", false, "write the generated files instead of comparing them")

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

// fakeRelay tells what the test says.
type fakeRelay struct {
	state  relay.State
	counts relay.Counts
}

func (f *fakeRelay) State() relay.State   { return f.state }
func (f *fakeRelay) Counts() relay.Counts { return f.counts }

func (f *fakeRelay) CountedAs(queue string) string {
	for i := range f.counts.Queues {
		if f.counts.Queues[i].Name == queue {
			return queue
		}
	}
	return relay.OtherQueues
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func before(seconds int) *time.Time {
	at := noon.Add(-time.Duration(seconds) * time.Second)
	return &at
}

// busy is a relay with something of everything.
func busy() *fakeRelay {
	some := tally.Distribution{Count: 3, Sum: 1.5, Bounds: []float64{1}, Buckets: []uint64{2}}
	requests := map[string]uint64{relay.Accepted: 41, "transient": 2}
	return &fakeRelay{
		state: relay.State{
			At: noon, Phase: relay.Active, Epoch: 7, Sessions: 2,
			Source: relay.SourceState{LastWord: before(2), Trouble: &relay.Trouble{Text: "no publication"}},
			Router: relay.RouterState{
				Messages: 12, MessagesLimit: 8192, Bytes: 3400, BytesLimit: 1 << 24, Oldest: before(3), Cached: 5,
				InFlight: 4, InFlightLimit: 256, OldestRequest: before(1),
				Endpoint: relay.GateState{Closed: true, Class: "endpoint_closed"},
				Queues: []relay.QueueState{
					{Name: "orders", InFlight: 1, InMemory: 9, Hold: "held", HeldLanes: 3, DrainingLanes: 2},
					{Name: "mails", Gate: relay.GateState{Closed: true}, InFlight: 2},
					{Name: "late", Gate: relay.GateState{Closed: true}, Paused: true, InFlight: 1},
				},
			},
			Writer: relay.WriterState{Pending: 6},
			Totals: relay.Totals{Withdrawn: 1, Recovered: 2, LastOutcome: before(1)},
			Loops:  []relay.LoopState{{Name: "sweep", Trouble: &relay.Trouble{Text: "no right"}}},
		},
		counts: relay.Counts{
			Received: 100, Live: some, Deferred: some, PossibleDuplicates: 1,
			Deferrals: map[string]uint64{"held": 5}, DeadLetters: map[string]uint64{"refused": 1},
			Batches: some, Writes: some, FailedWrites: 1,
			Removed: relay.Removed{Messages: 10, Claims: 20}, Retained: before(30),
			Queues: []relay.QueueCounts{
				{Name: "orders", Dispatched: 41, Requests: requests, Duration: some},
				{Name: relay.OtherQueues, Requests: requests, Duration: some},
			},
		},
	}
}

// figures are what Postgres may know.
func figures() *status.Figures {
	f := &status.Figures{
		WrittenBytes: 5 << 30, Replication: status.SlotFigures{
			InactiveSince: before(60), IdleLimitSeconds: new(172800.0), CatalogXmin: new("700"), CatalogAge: new(int64(1234)), SpilledTransactions: new(int64(2)),
			SpilledBytes: new(int64(70_000)), DecodedBytes: new(int64(90_000)), Failover: new(true), FailoverReady: new(false),
		},
		DeadLetterReasons:    []status.ReasonCount{{Reason: "refused", Count: 2}, {Reason: "by hand", Count: 1}},
		OldestUnknownSeconds: new(120.0),
		Tables:               []status.Table{{Name: "messages", Bytes: 8192, DeadRows: 3, Rows: 70}},
		Transactions:         status.Transactions{Writer: new(900.0), Prepared: new(0.0), Reader: new(30.0)},
		Ahead:                -0.25,
	}
	f.At = noon
	f.Relay = &status.Relay{SlotMoves: 1}
	f.Slot = &status.Slot{
		WALStatus: "extended", RetainedBytes: new(int64(1 << 30)), UnconfirmedBytes: new(int64(1 << 20)),
		SafeBytes: new(int64(3 << 30)), LimitBytes: new(int64(4 << 30)),
	}
	f.WithoutOutcome = status.Count{Count: 4, OldestSeconds: new(0.5)}
	f.DeferredReasons = []status.Reason{{Reason: "transient", Count: 7, OldestSeconds: new(60.0)}}
	f.Claims = status.Claims{Rows: 1000, OldestExpiredSeconds: new(10.0)}
	return f
}

// checked is a check that has found something.
func checked() verify.Result {
	r := &verify.Report{Seconds: 12, Faults: map[verify.Kind]int64{verify.Unaccounted: 3}}
	r.Messages = 5000
	return verify.Result{Report: r, Ended: *before(60), Due: noon.Add(time.Hour), Failures: 2}
}

// of returns the metrics of a fake relay, without a database.
func of(r *fakeRelay) *Metrics {
	m := New(Options{
		Relay: r, Ready: func(*relay.State) bool { return false }, Live: func(*relay.State) bool { return true },
		Stream: func() cdc.Stats {
			return cdc.Stats{Notices: 3, Ends: map[string]uint64{"silence": 2}, Losses: map[string]uint64{"wal_removed": 1}}
		},
		Lost:     func() uint64 { return 5 },
		Verified: checked,
		Build:    Build{Version: "v1.2.3", Revision: "abc", Go: "go1.26"},
	}, zap.NewNop())
	m.watch.seen.Store(&sight{at: noon.Add(-time.Second)})
	m.visits.seen.Store(&visit{&doctor.Report{Checks: []doctor.Result{
		{ID: "D09", Status: doctor.Warn}, {ID: "D10", Status: doctor.Skip}, {ID: "D28", Status: doctor.Fail}, {ID: "D31", Status: doctor.Pass},
	}}, noon.Add(-time.Minute)})
	return m
}

// withFigures adds what Postgres knew two seconds ago.
func (m *Metrics) withFigures(f *status.Figures) *Metrics {
	m.watch.seen.Store(&sight{
		figures: f, at: noon.Add(-2 * time.Second), took: 30 * time.Millisecond, timeToLoss: new(3600.0), horizonHeld: new(45.0), own: new(987.0),
		expiries: map[string]time.Time{"server": noon.Add(time.Hour)},
	})
	return m
}

func (m *Metrics) gather(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), prefix) {
			byName[f.GetName()] = f
		}
	}
	return byName
}

// series writes a family as lines of label values and value.
func series(f *dto.MetricFamily) (lines []string) {
	for _, metric := range f.GetMetric() {
		var values []string
		for _, l := range metric.GetLabel() {
			values = append(values, l.GetValue())
		}
		value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %g", strings.Join(values, ","), value)))
	}
	return lines
}

// expect compares the series that are not 0.
func expect(t *testing.T, all map[string]*dto.MetricFamily, f *family, want ...string) {
	t.Helper()
	var got []string
	for _, line := range series(all[f.name]) {
		if !strings.HasSuffix(line, " 0") && line != "0" {
			got = append(got, line)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", f.name, diff)
	}
}

func TestMetrics_TellWhatTheRelayKnows(t *testing.T) {
	t.Parallel()
	all := of(busy()).gather(t)
	expect(t, all, famState, "active 1")
	expect(t, all, famLeader, "1")
	expect(t, all, famReady)
	expect(t, all, famLive, "1")
	expect(t, all, famMode, "wal 1")
	expect(t, all, famDispatched, "orders 41")
	expect(t, all, famRequests, "accepted,orders 41", "accepted,other 41", "transient,orders 2", "transient,other 2")
	expect(t, all, famEndpointClosed, "endpoint_closed 1")
	expect(t, all, famQueueClosed, "other 2")
	expect(t, all, famPaused, "other 1")
	expect(t, all, famHeld, "orders 1")
	expect(t, all, famHeldLanes, "orders 3")
	expect(t, all, famDrainingLanes, "orders 2")
	expect(t, all, famQueueInFlight, "orders 1", "other 3")
	expect(t, all, famLoopTrouble, "sweep 1")
	expect(t, all, famSourceTrouble, "1")
	expect(t, all, famWindowAge, "3")
	expect(t, all, famNotices, "3")
	expect(t, all, famSessionEnds, "silence 2")
	expect(t, all, famSlotLosses, "wal_removed 1")
	if n := len(all[famSlotLosses.name].GetMetric()); n != len(cdc.Losses) {
		t.Errorf("%d reasons for which a slot is lost", n)
	}
	expect(t, all, famCheck, "D09 1", "D28 2")
	if n := len(all[famCheck.name].GetMetric()); n != 3 {
		t.Errorf("%d checks are exported, and one was skipped", n)
	}
	expect(t, all, famVisit, fmt.Sprintf("%g", float64(noon.Unix()-60)))
	expect(t, all, famRemoved, "claims 20", "messages 10")
	expect(t, all, famSpansLost, "5")
	expect(t, all, famBuild, "go1.26,abc,v1.2.3 1")
	if h := all[famLatency.name].GetMetric()[0].GetHistogram(); h.GetSampleCount() != 3 || h.GetBucket()[0].GetCumulativeCount() != 2 {
		t.Errorf("the latency is %v", h)
	}
}

func TestMetrics_TellWhatPostgresKnew(t *testing.T) {
	t.Parallel()
	all := of(busy()).withFigures(figures()).gather(t)
	expect(t, all, famAge, "2")
	expect(t, all, famSlotStatus, "extended 1")
	expect(t, all, famSlotInactive, "60")
	expect(t, all, famIdleLimit, "172800")
	expect(t, all, famTableRows, "messages 70")
	expect(t, all, famTransaction, "reader 30", "writer 900")
	expect(t, all, famSkew, "-0.25")
	expect(t, all, famCertificate, fmt.Sprintf("server %g", float64(noon.Unix()+3600)))
	expect(t, all, famTimeToLoss, "3600")
	expect(t, all, famSlotMoves, "1")
	expect(t, all, famWaiting, "transient 7")
	expect(t, all, famWaitingAge, "transient 60")
	expect(t, all, famUnknownAge, "120")
	expect(t, all, famDead, "other 1", "refused 2")
	expect(t, all, famWithoutAge, "0.5")
	expect(t, all, famOwnWAL, "987")
	expect(t, all, famDecoded, "90000")
	expect(t, all, famSpilled, "70000")
	expect(t, all, famSpilledTransactions, "2")
	expect(t, all, famHorizonAge, "1234")
	expect(t, all, famHorizonHeld, "45")
	expect(t, all, famFailover, "1")
	if expect(t, all, famFailoverReady); all[famFailoverReady.name] == nil {
		t.Error("nothing says that the failover is not ready")
	}
}

func TestMetrics_TellOfTheLastCheck(t *testing.T) {
	t.Parallel()
	r := busy()
	all := of(r).gather(t)
	expect(t, all, famCheckMessages, "5000")
	expect(t, all, famCheckDuration, "12")
	expect(t, all, famCheckFaults, "unaccounted 3")
	expect(t, all, famCheckFailures, "2")
	expect(t, all, famChecked, fmt.Sprintf("%g", float64(noon.Unix()-60)))
	expect(t, all, famCheckDue, fmt.Sprintf("%g", float64(noon.Unix()+3600)))
	if n := len(all[famCheckFaults.name].GetMetric()); n != len(verify.Kinds) {
		t.Errorf("%d kinds of faults", n)
	}
	m := of(r)
	m.verified = func() verify.Result { return verify.Result{} }
	all = m.gather(t)
	for _, f := range []*family{famCheckMessages, famCheckDuration, famCheckFaults, famCheckDue} {
		if all[f.name] != nil {
			t.Errorf("%s is exported without a check", f.name)
		}
	}
	if expect(t, all, famChecked); all[famChecked.name] == nil {
		t.Error("nothing says that there was no check")
	}
}

// What is not known is not exported: a slot without a limit is not one with none
// left.
func TestMetrics_LeaveOutWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	f := figures()
	f.Slot.SafeBytes, f.Slot.LimitBytes, f.Replication, f.Transactions = nil, nil, status.SlotFigures{}, status.Transactions{}
	m := of(busy()).withFigures(f)
	seen := *m.watch.last()
	seen.timeToLoss, seen.horizonHeld, seen.own, seen.expiries = nil, nil, nil, nil
	m.watch.seen.Store(&seen)
	all := m.gather(t)
	for _, f := range []*family{
		famSafe, famLimit, famTimeToLoss, famSlotInactive, famOwnWAL, famDecoded, famSpilled, famSpilledTransactions,
		famHorizonAge, famHorizonHeld, famFailover, famFailoverReady, famIdleLimit, famTransaction, famCertificate,
	} {
		if all[f.name] != nil {
			t.Errorf("%s is exported", f.name)
		}
	}
	f.Slot = nil
	expect(t, m.gather(t), famSlotStatus, "missing 1")
}

// Figures that are old are worse than none.
func TestMetrics_LeaveOutWhatIsOld(t *testing.T) {
	t.Parallel()
	m := of(busy()).withFigures(figures())
	seen := *m.watch.last()
	seen.at, seen.failures = noon.Add(-61*time.Second), 4
	m.watch.seen.Store(&seen)
	all := m.gather(t)
	expect(t, all, famAge, "61")
	expect(t, all, famReadFailures, "4")
	if all[famSlotStatus.name] != nil || all[famWaiting.name] != nil {
		t.Error("old figures are exported")
	}
}

// The charts of the page are made of the same look.
func TestMetrics_Report(t *testing.T) {
	t.Parallel()
	m := of(busy())
	if r := m.Report(noon); r != nil {
		t.Errorf("before the first look: %+v", r)
	}
	m.withFigures(figures())
	if r := m.Report(noon); r == nil || r.WithoutOutcome.Count != 4 {
		t.Errorf("got %+v", r)
	}
	if r := m.Report(noon.Add(fresh)); r != nil {
		t.Errorf("an old look is told: %+v", r)
	}
}

// A relay that waits exports the same names as one that moves messages.
func TestMetrics_OfAStandbyHaveTheSameNames(t *testing.T) {
	t.Parallel()
	nowhere, err := pgx.ParseConfig("host=127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	r := relay.New(relay.Config{Slot: "s"}, nowhere, standbySource{}, nil, zap.NewNop())
	m := New(Options{
		Relay: r, Ready: func(*relay.State) bool { return true }, Live: func(*relay.State) bool { return true }, Verified: checked,
	}, zap.NewNop())
	m.watch.seen.Store(&sight{
		figures: figures(), at: time.Now(), timeToLoss: new(1.0), horizonHeld: new(1.0), own: new(1.0),
		expiries: map[string]time.Time{"client": noon},
	})
	m.visits.seen.Store(&visit{&doctor.Report{Checks: []doctor.Result{{ID: "D01", Status: doctor.Pass}}}, noon})
	var got, want []string
	for name := range m.gather(t) {
		got = append(got, name)
	}
	for _, s := range sections {
		for _, f := range s.families {
			want = append(want, f.name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// standbySource is a source that has not been opened.
type standbySource struct{ relay.Source }

func (standbySource) BeforeTake(func(context.Context, string, int32) error) {}

func (standbySource) BeforeCreate(func(context.Context) (bool, error), func(context.Context) error) {}

func (standbySource) Condition() relay.Condition { return relay.Condition{} }

func (standbySource) Position() string { return "0/0" }

func (standbySource) LastWord() time.Time { return time.Time{} }

func TestMetrics_Lint(t *testing.T) {
	t.Parallel()
	problems, err := testutil.GatherAndLint(of(busy()).withFigures(figures()).registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// The list of metrics is an interface: rules and dashboards stand on it.
func TestMetrics_Golden(t *testing.T) {
	t.Parallel()
	var list strings.Builder
	families := of(busy()).withFigures(figures()).gather(t)
	for _, s := range sections {
		for _, f := range s.families {
			collected := families[f.name]
			if collected == nil {
				t.Errorf("%s is not exported", f.name)
				continue
			}
			var labels []string
			for _, l := range collected.GetMetric()[0].GetLabel() {
				labels = append(labels, l.GetName())
			}
			fmt.Fprintf(&list, "%s %s {%s} %s\n", f.name, strings.ToLower(collected.GetType().String()), strings.Join(labels, ","), collected.GetHelp())
			delete(families, f.name)
		}
	}
	for name := range families {
		t.Errorf("%s is in no section", name)
	}
	compare(t, "testdata/metrics.golden", list.String())
}

// compare compares a text with a file, or writes it.
func compare(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("%s is not what the code says; make generate writes it (-file +code):\n%s", file, diff)
	}
}
