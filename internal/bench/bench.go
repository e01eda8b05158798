// Package bench measures the relay side by side with the limits of the machine:
// every figure of docs/performance.md comes from it. It starts its own Postgres
// and its own sink, both on loopback, and is what `outbox-relay bench` runs.
//
// Speeds on a shared machine are worth little; ratios of what ran in turn, in
// one run, are worth more. So every comparison alternates between the two sides
// and reports the median ratio of the pairs.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"go.uber.org/zap"
)

// Config says what to measure.
type Config struct {
	// Messages is the size of the backlog of a throughput run.
	Messages int
	// Runs is how often every comparison is repeated.
	Runs int
	// Latency is how long the run at 1,000 messages a second lasts.
	Latency time.Duration
	// Only names the measurements to make; empty means all.
	Only []string
	// PostgresVersion is a major version; empty means any that is found.
	PostgresVersion string
	// Progress gets a line for each step.
	Progress io.Writer
	// Log gets what the relay under test logs.
	Log *zap.Logger
}

// Report is what was measured.
type Report struct {
	SchemaVersion int       `json:"schema_version"`
	Time          time.Time `json:"time"`
	Go            string    `json:"go"`
	CPUs          int       `json:"cpus"`
	Postgres      string    `json:"postgres"`
	// Workload says in words what there was to do, where it is not a backlog of
	// messages.
	Workload string   `json:"workload,omitempty"`
	Messages int      `json:"messages,omitempty"`
	Runs     int      `json:"runs"`
	Results  []Result `json:"results"`
}

// Result is one figure.
type Result struct {
	// Name is the measurement, such as "receive".
	Name string `json:"name"`
	// What says in words what the figure is.
	What string `json:"what"`
	// Unit is the unit of the figures.
	Unit string `json:"unit"`
	// Median, Min and Max are over the runs.
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Budget is the wanted value in words, empty where there is none.
	Budget string `json:"budget,omitempty"`
	// Met says whether the median meets the budget.
	Met bool `json:"met"`
}

// measurement is one of the things that can be measured.
type measurement struct {
	name string
	run  func(context.Context, *rig) ([]Result, error)
}

var measurements = []measurement{
	{"receive", measureReceive},
	{"publish", measurePublish},
	{"delay", measureDelay},
	{"latency", measureLatency},
	{"marks", measureMarks},
	{"memory", measureMemory},
	{"poison", measurePoison},
}

// Names are the names of the measurements, in the order in which they run.
func Names() []string {
	names := make([]string, len(measurements))
	for i, m := range measurements {
		names[i] = m.name
	}
	return names
}

// Run measures. It takes a few minutes.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	for _, name := range cfg.Only {
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("no measurement %q; there are %v", name, Names())
		}
	}
	r, err := newRig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer r.close()
	report := newReport(r, cfg.Runs)
	report.Messages = cfg.Messages
	for _, m := range measurements {
		if len(cfg.Only) > 0 && !slices.Contains(cfg.Only, m.name) {
			continue
		}
		results, err := m.run(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", m.name, err)
		}
		report.Results = append(report.Results, results...)
	}
	return report, nil
}

func newReport(r *rig, runs int) *Report {
	return &Report{
		SchemaVersion: 1, Time: time.Now().UTC(), Go: runtime.Version(), CPUs: runtime.NumCPU(), Postgres: r.postgres, Runs: runs,
	}
}

// Missed is every budget that was not met.
func (r *Report) Missed() error { return missed(r.Results) }

func missed(results []Result) error {
	var errs []error
	for _, result := range results {
		if !result.Met {
			errs = append(errs, fmt.Errorf("%s: %s %s, want %s", result.What, number(result.Median), result.Unit, result.Budget))
		}
	}
	return errors.Join(errs...)
}

// figures collects one figure over the runs.
type figures []float64

func (f figures) result(name, what, unit string) Result {
	sorted := slices.Sorted(slices.Values(f))
	return Result{
		Name: name, What: what, Unit: unit, Met: true,
		Median: sorted[len(sorted)/2], Min: sorted[0], Max: sorted[len(sorted)-1],
	}
}

// atLeast and below hold a result against its budget.
func (r Result) atLeast(want float64) Result {
	r.Budget, r.Met = fmt.Sprintf("at least %g", want), r.Median >= want
	return r
}

func (r Result) below(want float64) Result {
	r.Budget, r.Met = fmt.Sprintf("below %g", want), r.Median < want
	return r
}
