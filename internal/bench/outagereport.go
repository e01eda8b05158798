package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// OutageReport is what an outage has shown.
type OutageReport struct {
	SchemaVersion int       `json:"schema_version"`
	Time          time.Time `json:"time"`
	Go            string    `json:"go"`
	CPUs          int       `json:"cpus"`
	Postgres      string    `json:"postgres"`

	// LimitBefore and LimitAfter are the live path at full speed, and Drain the
	// drain, each with the messages that kept coming.
	LimitBefore Speed `json:"limit_before"`
	LimitAfter  Speed `json:"limit_after"`
	Drain       Speed `json:"drain"`
	// Backlog is the messages without acceptance when the queue came back.
	Backlog int `json:"backlog"`
	// Noticed and Drained are the seconds from the queue's return to its first
	// acceptance and to an empty table.
	Noticed float64 `json:"noticed"`
	Drained float64 `json:"drained"`
	// Written is the WAL that was written while the queue was down, in bytes.
	Written int64 `json:"written"`

	Results []Result      `json:"results"`
	Phases  []PhaseReport `json:"phases"`
	Samples []Sample      `json:"samples"`
	Example string        `json:"example,omitempty"`
}

// PhaseReport is what a phase has shown. Sizes are in bytes, the waits of the
// queue that stays up in milliseconds, by the time when a message was written.
type PhaseReport struct {
	Phase
	Rate        float64 `json:"rate"`
	Retained    int64   `json:"retained"`
	Unconfirmed int64   `json:"unconfirmed"`
	Deferred    int64   `json:"deferred"`
	Resident    int64   `json:"resident"`
	Waits       int     `json:"waits"`
	P50         float64 `json:"p50"`
	P99         float64 `json:"p99"`
}

// The budgets: see docs/performance.md.
const (
	mostRetained = 64 // MiB
	// A slot that waits for the queue is only seen if much more than it may
	// keep is written meanwhile.
	leastWritten = 1.2 * mostRetained
	mostResident = 100 // MiB
)

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// conclude holds what the queue has seen against what was committed, and both
// against the budgets.
func (o *outage) conclude(ctx context.Context, report *OutageReport) error {
	if err := o.await(ctx, "the marks", o.allMarked); err != nil {
		return err
	}
	books, err := o.queue.books(ctx)
	if err != nil {
		return err
	}
	peak, err := residentBytes(o.relay.pid, "VmHWM")
	if err != nil {
		return err
	}
	report.SchemaVersion, report.Time, report.Go, report.CPUs = 1, time.Now().UTC(), runtime.Version(), runtime.NumCPU()
	report.Postgres, report.Example = o.rig.postgres, books.Example
	o.phases[len(o.phases)-1].To = time.Since(o.began).Seconds()
	report.Samples = o.samples
	for _, p := range o.phases {
		report.Phases = append(report.Phases, o.phaseReport(p, books.Waits))
	}
	down := report.during(phaseFailing, phaseRefusing)
	report.Written = down[len(down)-1].WAL - down[0].WAL
	lost, phantom := books.against(o.committed.copy())
	report.judge(o.cfg.LeastDrain, peak, lost, phantom, books)
	return nil
}

// allMarked reports whether every message is marked and nothing else is left.
func (o *outage) allMarked(ctx context.Context) (marked bool, err error) {
	err = o.rig.conn.QueryRow(ctx, `select (select count(*) from outbox.dispatched) = $1
		and not exists (select from outbox.deferred) and not exists (select from outbox.dead_letters)`,
		o.committed.total()).Scan(&marked)
	return marked, err
}

// phaseReport sums a phase up.
func (o *outage) phaseReport(p Phase, waits []Wait) PhaseReport {
	r := PhaseReport{Phase: p}
	var first, last *Sample
	for i := range o.samples {
		s := &o.samples[i]
		if s.Phase != p.Name {
			continue
		}
		if first == nil {
			first = s
		}
		last = s
		r.Retained, r.Unconfirmed = max(r.Retained, s.Retained), max(r.Unconfirmed, s.Unconfirmed)
		r.Deferred, r.Resident = max(r.Deferred, s.Deferred), max(r.Resident, s.Resident)
	}
	if first != last {
		r.Rate = float64(last.Accepted-first.Accepted) / (last.At - first.At)
	}
	from := o.began.Add(time.Duration(p.From * float64(time.Second))).UnixMicro()
	to := o.began.Add(time.Duration(p.To * float64(time.Second))).UnixMicro()
	var took []int64
	for _, w := range waits {
		if from <= w.At && w.At < to {
			took = append(took, w.Took)
		}
	}
	r.Waits, r.P50, r.P99 = len(took), percentile(took, 50), percentile(took, 99)
	return r
}

// percentile sorts waits in microseconds and returns one in milliseconds, 0
// without any.
func percentile(took []int64, percent int) float64 {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return float64(took[len(took)*percent/100]) / 1000
}

// during are the samples of phases.
func (r *OutageReport) during(phases ...string) (samples []Sample) {
	for _, s := range r.Samples {
		if slices.Contains(phases, s.Phase) {
			samples = append(samples, s)
		}
	}
	return samples
}

// judge holds the figures against the budgets.
func (r *OutageReport) judge(leastDrain float64, peak int64, lost, phantom int, books Books) {
	var down, retained, unconfirmed, deferred, resident figures
	for _, s := range r.during(phaseFailing, phaseRefusing) {
		down = append(down, mebibytes(s.Retained))
	}
	for _, s := range r.during(phaseFailing, phaseRefusing, phaseDrain) {
		retained, unconfirmed = append(retained, mebibytes(s.Retained)), append(unconfirmed, mebibytes(s.Unconfirmed))
		deferred, resident = append(deferred, float64(s.Deferred)), append(resident, mebibytes(s.Resident))
	}
	one := func(x float64, name, what, unit string) Result { return figures{x}.result(name, what, unit) }
	live := (r.LimitBefore.PerCore + r.LimitAfter.PerCore) / 2
	r.Results = []Result{
		one(slices.Max(down), "outage.retained", "WAL kept by the slot, the most while the queue was down", "MiB").atMost(mostRetained),
		// The server gives WAL up every 15 seconds only, whatever is confirmed: a
		// drain that writes much keeps what it writes in that time.
		one(slices.Max(retained), "outage.retained_drain", "the same with the drain", "MiB"),
		one(slices.Max(unconfirmed), "outage.unconfirmed", "of it not confirmed by the relay, the most", "MiB").atMost(mostRetained),
		one(mebibytes(r.Written), "outage.written", "WAL written while the queue was down", "MiB").atLeast(leastWritten),
		one(slices.Max(resident), "outage.resident", "the relay's resident memory, the most while down and draining", "MiB").below(mostResident),
		// Full speed on a machine that is busy is not what this run is about.
		one(mebibytes(peak), "outage.resident_peak", "the same at any time, also at full speed", "MiB"),
		one(slices.Max(deferred), "outage.deferred", "messages deferred, the most", "messages"),
		one(r.LimitBefore.Rate, "outage.limit_before", "live path at full speed, before the outage", "messages/s"),
		one(r.LimitAfter.Rate, "outage.limit_after", "the same after it", "messages/s"),
		one(r.Drain.Rate, "outage.drain", "drain, with the new messages", "messages/s"),
		one(live, "outage.limit_core", "live path for each core that others left, mean of both", "messages/s"),
		one(r.Drain.PerCore, "outage.drain_core", "drain for each core that others left", "messages/s"),
		one(r.Drain.PerCore/live, "outage.drain_ratio", "ratio of these two", "ratio").atLeast(leastDrain),
		one(r.Noticed, "outage.noticed", "return of the queue to the first acceptance", "s"),
		one(r.Drained, "outage.drained", "return of the queue to an empty table", "s"),
		one(float64(books.Breaches), "outage.breaches", "order breaches", "messages").atMost(0),
		one(float64(lost), "outage.lost", "committed messages that were never accepted", "messages").atMost(0),
		one(float64(phantom), "outage.phantom", "accepted messages that were never committed", "messages").atMost(0),
		one(float64(books.Repeated), "outage.repeated", "messages accepted twice", "messages"),
	}
}

// atMost is below with the budget itself allowed.
func (r Result) atMost(want float64) Result {
	r.Budget, r.Met = fmt.Sprintf("at most %g", want), r.Median <= want
	return r
}

// ErrPromiseBroken says that messages were lost, invented or out of order.
var ErrPromiseBroken = errors.New("a promise was broken")

// Broken is ErrPromiseBroken with what happened, or nil.
func (r *OutageReport) Broken() error {
	var errs []error
	for _, result := range r.Results {
		if slices.Contains([]string{"outage.breaches", "outage.lost", "outage.phantom"}, result.Name) && !result.Met {
			errs = append(errs, fmt.Errorf("%w: %.0f %s", ErrPromiseBroken, result.Median, result.What))
		}
	}
	return errors.Join(errs...)
}

// Missed is every budget that was not met.
func (r *OutageReport) Missed() error { return missed(r.Results) }

// Print writes the report for people.
func (r *OutageReport) Print(out io.Writer) error {
	fmt.Fprintf(out, "%s, %d CPUs, Postgres %s\n\n", r.Go, r.CPUs, r.Postgres)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "what\tfigure\tunit\tbudget\t")
	for _, result := range r.Results {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t\n", result.What, number(result.Median), result.Unit, result.verdict())
	}
	fmt.Fprintln(table, "\t\t\t\t")
	if err := table.Flush(); err != nil {
		return err
	}
	table = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "phase\ts\taccepted/s\tslot, MiB\tdeferred\tresident, MiB\tother queue: n\tp50, ms\tp99, ms\t")
	for _, p := range r.Phases {
		fmt.Fprintf(table, "%s\t%.0f\t%s\t%s\t%d\t%s\t%d\t%s\t%s\t\n", p.Name, p.To-p.From, number(p.Rate), number(mebibytes(p.Retained)),
			p.Deferred, number(mebibytes(p.Resident)), p.Waits, number(p.P50), number(p.P99))
	}
	return table.Flush()
}
