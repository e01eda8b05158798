package metrics

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/internal/verify"
	"github.com/outbox-relay/outbox-relay/relay"
)

// Relay is what tells of a relay: a *[relay.Relay].
type Relay interface {
	State() relay.State
	Counts() relay.Counts
	CountedAs(queue string) string
}

// Options say what a [Metrics] is about.
type Options struct {
	Relay Relay
	// Stream counts what was read from the WAL; nil where the table is polled.
	Stream func() cdc.Stats
	// Verified is the last check of the outbox; nil without checks.
	Verified func() verify.Result
	// Lost counts the spans that did not reach the collector; nil without traces.
	Lost func() uint64
	// Ready and Live are the answers of the health checks.
	Ready, Live func(*relay.State) bool
	// Examine has the doctor look; nil without one.
	Examine func(context.Context) *doctor.Report
	// Connect opens a connection for the questions to Postgres.
	Connect      func(context.Context) (*pgx.Conn, error)
	Schema, Slot string
	Build        Build
}

// Build is which program this is.
type Build struct{ Version, Revision, Go string }

// Metrics collects the metrics of one relay.
type Metrics struct {
	relay       Relay
	source      func() cdc.Stats
	ready, live func(*relay.State) bool
	verified    func() verify.Result
	lost        func() uint64
	watch       *watch
	visits      visits
	registry    *prometheus.Registry
}

var process = section{title: "The program"}

var famBuild = process.gauge("build_info",
	"1, with the version of the program as labels.", "", "version", "revision", "goversion")

var famSpansLost = process.counter("spans_lost_total",
	"Spans that no collector took, because it failed or was too slow; 0 without traces.",
	"Messages do not wait for them. Look for `tracing` in the log; OTEL_TRACES_SAMPLER makes fewer.")

// sections are the sections of the page, in their order.
var sections = []*section{&moving, &outcomes, &queues, &checks, &database, &visited, &memory, &process}

// New returns metrics in a registry of their own.
func New(o Options, log *zap.Logger) *Metrics {
	m := &Metrics{
		relay: o.Relay, source: o.Stream, ready: o.Ready, live: o.Live, verified: o.Verified, lost: o.Lost,
		watch:    &watch{connect: o.Connect, state: o.Relay.State, schema: o.Schema, slot: o.Slot, log: log.Named("metrics"), now: time.Now},
		registry: prometheus.NewRegistry(),
	}
	m.visits.examine = o.Examine
	if m.verified == nil {
		m.verified = func() verify.Result { return verify.Result{} }
	}
	if m.lost == nil {
		m.lost = func() uint64 { return 0 }
	}
	if m.source == nil {
		m.source = func() cdc.Stats { return cdc.Stats{} }
	}
	m.watch.seen.Store(&sight{at: time.Now()})
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: famBuild.name, Help: famBuild.help,
		ConstLabels: prometheus.Labels{"version": o.Build.Version, "revision": o.Build.Revision, "goversion": o.Build.Go},
	}, func() float64 { return 1 })
	m.registry.MustRegister(m, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Run reads what only Postgres knows, and has the doctor look, until ctx ends.
func (m *Metrics) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { m.visits.run(ctx) })
	m.watch.run(ctx)
	group.Wait()
}

// Report is what was read last, for whoever wants to know the same; nil if there is
// nothing, or nothing fresh.
func (m *Metrics) Report(now time.Time) *status.Report {
	seen := m.watch.last()
	if seen.figures == nil || now.Sub(seen.at) > fresh {
		return nil
	}
	return &seen.figures.Report
}

// scrapes is how many scrapes may be answered at once.
const scrapes = 4

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes})
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, section := range sections {
		for _, f := range section.families {
			if f != famBuild {
				to <- f.desc
			}
		}
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	out := sink(to)
	counts, state := m.relay.Counts(), m.relay.State()
	m.moving(out, &state, &counts)
	stream(out, m.source())
	became(out, &state, &counts)
	m.queues(out, &state, &counts)
	m.checks(out)
	m.database(out, state.At)
	m.doctor(out)
	inMemory(out, &state)
	out.count(famSpansLost, m.lost())
}

// oneOf returns what is in a list of labels, or stands for everything else.
func oneOf(list []string, text string) string {
	if slices.Contains(list, text) {
		return text
	}
	return relay.OtherReasons
}

func orZero(value *float64) float64 {
	if value == nil {
		return 0
	}
	return *value
}
