package admin

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/internal/tally"
	"github.com/outbox-relay/outbox-relay/relay"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	d := tally.Distribution{Count: 100, Bounds: []float64{1, 2, 4}, Buckets: []uint64{50, 90, 98}}
	for part, want := range map[float64]float64{0.25: 0.5, 0.5: 1, 0.7: 1.5, 0.9: 2, 0.94: 3, 0.98: 4, 0.99: 4, 1: 4} {
		if got := quantile(d, part); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %v is %v, want %v", part, got, want)
		}
	}
	if got := quantile(tally.Distribution{Bounds: []float64{1}, Buckets: []uint64{0}}, 0.5); !math.IsNaN(got) {
		t.Errorf("of nothing it is %v", got)
	}
}

// countsOf is what a relay has counted that dispatched n messages, each within a
// second after the commit.
func countsOf(n uint64) relay.Counts {
	latency := tally.Distribution{Count: n, Bounds: []float64{1, 2}, Buckets: []uint64{n, n}}
	return relay.Counts{
		Received: 2 * n, Live: latency, Deferred: tally.Distribution{Bounds: latency.Bounds, Buckets: []uint64{0, 0}},
		Queues: []relay.QueueCounts{{Name: "a", Dispatched: n / 2}, {Name: "b", Dispatched: n - n/2}},
	}
}

func TestHistory_CountsSinceTheSampleBefore(t *testing.T) {
	t.Parallel()
	var h history
	now := time.Unix(1_000_000, 0)
	h.add(sample{at: now}, countsOf(100))
	h.add(sample{at: now.Add(5 * time.Second)}, countsOf(150))
	h.add(sample{at: now.Add(10 * time.Second)}, countsOf(150))
	all := h.all()
	if !math.IsNaN(all[0].dispatched) {
		t.Errorf("the first sample has a rate of %v", all[0].dispatched)
	}
	if s := all[1]; s.dispatched != 10 || s.received != 20 || s.median != 0.5 {
		t.Errorf("the second sample is %+v", s)
	}
	if s := all[2]; s.dispatched != 0 || !math.IsNaN(s.median) {
		t.Errorf("the third sample is %+v", s)
	}
}

// An hour is kept, whatever comes.
func TestHistory_KeepsAnHour(t *testing.T) {
	t.Parallel()
	var h history
	began := time.Unix(1_000_000, 0)
	for i := range 3 * samples {
		h.add(sample{at: began.Add(time.Duration(i) * sampleEvery)}, countsOf(uint64(i)))
	}
	all := h.all()
	if len(all) != samples {
		t.Fatalf("%d samples, want %d", len(all), samples)
	}
	for i, s := range all {
		if want := began.Add(time.Duration(2*samples+i) * sampleEvery); !s.at.Equal(want) {
			t.Fatalf("sample %d is of %s, want %s", i, s.at, want)
		}
	}
	for _, c := range charts(all, all[len(all)-1].at) {
		for _, l := range c.Lines {
			if n := strings.Count(l.Path, "L") + 1; n > points+1 {
				t.Errorf("%s has %d points", c.ID, n)
			}
		}
	}
}

func TestCharts(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	var all []sample
	for i := range 5 { // a minute apart, the third one unknown, and a failure in between
		s := sample{at: now.Add(time.Duration(i-4) * time.Minute), dispatched: float64(25 * i), received: math.NaN(), failing: i == 2}
		if i == 2 {
			s.dispatched = math.NaN()
		}
		all = append(all, s)
	}
	c := charts(all, now)[0]
	want := chart{
		ID: "rate", Title: "Messages per second", About: "read from the stream, and dispatched", Scale: []string{"100", "50", "0"},
		Span: "5 min", Shades: []shade{{X: 360, Width: 120}}, Width: 600, Height: 120,
		Lines: []line{
			{
				Name: "dispatched", Now: "100", Path: "M120.0 120.0L240.0 90.0M480.0 30.0L600.0 0.0",
				Area: "M120.0 120.0L240.0 90.0L240.0 120.0L120.0 120.0ZM480.0 30.0L600.0 0.0L600.0 120.0L480.0 120.0Z",
			},
			{Name: "read", Now: "none"},
		},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		seconds(0.0001): "0.1 ms", seconds(0.0234): "23 ms", seconds(1.25): "1.3 s", seconds(42): "42 s", seconds(300): "5 min",
		seconds(7200): "2 h", seconds(1e6): "12 days",
		inBytes(512): "512 B", inBytes(1536): "1.5 KiB", inBytes(10 << 30): "10 GiB",
		grouped(1234567): "1\u202f234\u202f567", grouped(-1234): "-1\u202f234", grouped(12): "12",
		short(0.26): "0.3", short(1999.6): "2\u202f000",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// While nobody looks at the page, the charts go on by what somebody else has seen,
// and ask nobody for it.
func TestPage_SamplesWhatOthersHaveSeen(t *testing.T) {
	t.Parallel()
	looks := 0
	look := func(context.Context) (*Look, error) { looks++; return nil, errors.New("nobody asked") }
	state := func() relay.State { return relay.State{} }
	report := &status.Report{Deferred: status.Count{Count: 7}, Looked: time.Now()}
	p := &page{server: New(Config{}, state, look, zap.NewNop()), Desk: Desk{
		State: state, Counts: func() relay.Counts { return relay.Counts{} },
	}}
	p.server.Reads(func(time.Time) *status.Report { return report })
	p.sample(time.Now())
	report = nil
	p.sample(time.Now())
	if all := p.server.history.all(); looks != 0 || all[0].deferred != 7 || !math.IsNaN(all[1].deferred) {
		t.Errorf("%d looks, %+v", looks, all)
	}
}

// The pace is that of the looks of the last half minute, however many samples show
// the same one.
func TestHistory_Pace(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_000_000, 0)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	looks := func(h *history, sampled, looked int, deferred int64) {
		s := sample{at: at(sampled)}
		s.see(&status.Report{Looked: at(looked), Deferred: status.Count{Count: deferred}})
		h.add(s, countsOf(0))
	}
	var h history
	expect := func(now int, want string) {
		t.Helper()
		if got := h.pace(at(now)).Text(); got != want {
			t.Errorf("after %d s: %q, want %q", now, got, want)
		}
	}
	expect(0, "")
	looks(&h, 0, 0, 9000)
	looks(&h, 5, 0, 9000)
	expect(5, "")
	looks(&h, 10, 9, 8100)
	expect(10, "") // too short a time
	looks(&h, 15, 15, 6000)
	expect(15, "200 fewer a second, none left in about 30.0 s")
	h.add(sample{at: at(20)}, countsOf(0)) // Postgres does not answer
	expect(20, "")
	looks(&h, 40, 39, 5100) // the first ones are over
	expect(40, "100 fewer a second, none left in about 51.0 s")
	expect(69, "100 fewer a second, none left in about 51.0 s")
	expect(70, "")
}

// The page and /status tell the same pace, the page as long as something waits.
func TestPage_Pace(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ask := func(path string, look func(context.Context) (*Look, error)) string {
		state := func() relay.State { return relay.State{At: now} }
		s := New(Config{}, state, look, zap.NewNop())
		s.life = t.Context()
		s.AddPage(Desk{
			State: state, Counts: func() relay.Counts { return relay.Counts{} },
			Examine: func(context.Context) *doctor.Report { return new(doctor.Report) },
		})
		for i, n := range []int64{9000, 6000} {
			read := sample{at: now.Add(time.Duration(15*i-20) * time.Second)}
			read.see(&status.Report{Looked: read.at, Deferred: status.Count{Count: n}})
			s.history.add(read, countsOf(0))
		}
		answer := httptest.NewRecorder()
		s.mux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		return strings.Join(strings.Fields(answer.Body.String()), " ")
	}
	for path, want := range map[string]string{
		"/":       `<p id="pace" class="note">200 fewer a second, none left in about 30.0 s</p>`,
		"/status": `"deferred_pace": { "per_second": -200, "seconds_left": 30 }`,
	} {
		got := ask(path, func(context.Context) (*Look, error) { return nil, errors.New("nobody answers") })
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %s: %s", path, want, got)
		}
	}
	over := ask("/", func(context.Context) (*Look, error) { return &Look{Report: &status.Report{Looked: now}}, nil })
	if strings.Contains(over, `id="pace"`) || !strings.Contains(over, "No message waits in the table.") {
		t.Errorf("the backlog is over: %s", over)
	}
}
