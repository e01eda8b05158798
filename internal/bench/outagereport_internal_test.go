package bench

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// course is the report of an outage that met every budget.
func course() *OutageReport {
	r := &OutageReport{
		LimitBefore: Speed{Rate: 10_000, PerCore: 5000}, LimitAfter: Speed{Rate: 8000, PerCore: 4000},
		Drain: Speed{Rate: 7000, PerCore: 3500}, Written: 120 << 20,
	}
	for i := range 130 {
		phase := phaseBefore
		if i >= 10 {
			phase = phaseFailing
		}
		r.Samples = append(r.Samples, Sample{At: float64(i + 1), Phase: phase, Retained: 20 << 20, Deferred: int64(i), Rate: 1000})
	}
	return r
}

func TestOutageReport_BreaksOnlyOnPromises(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change         func(*OutageReport)
		lost, phantom  int
		breaches       int
		broken, missed bool
	}{
		"all met":            {},
		"lost":               {lost: 1, broken: true, missed: true},
		"never committed":    {phantom: 1, broken: true, missed: true},
		"out of order":       {breaches: 1, broken: true, missed: true},
		"slow drain":         {change: func(r *OutageReport) { r.Drain.PerCore = 3000 }, missed: true},
		"WAL kept":           {change: func(r *OutageReport) { r.Samples[50].Retained = 65 << 20 }, missed: true},
		"WAL kept before it": {change: func(r *OutageReport) { r.Samples[5].Retained = 65 << 20 }},
		"too little written": {change: func(r *OutageReport) { r.Written = 70 << 20 }, missed: true},
		"memory":             {change: func(r *OutageReport) { r.Samples[50].Resident = 101 << 20 }, missed: true},
		"memory before it":   {change: func(r *OutageReport) { r.Samples[5].Resident = 101 << 20 }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := course()
			if test.change != nil {
				test.change(r)
			}
			r.judge(0.7, 0, test.lost, test.phantom, Books{Counts: Counts{Breaches: test.breaches}})
			if err := r.Broken(); errors.Is(err, ErrPromiseBroken) != test.broken {
				t.Errorf("broken is %v, want %v", err, test.broken)
			}
			if err := r.Missed(); (err != nil) != test.missed {
				t.Errorf("missed is %v, want %v", err, test.missed)
			}
		})
	}
}

func TestOutageReport_Chart(t *testing.T) {
	t.Parallel()
	r := course()
	r.Phases = []PhaseReport{{Phase: Phase{Name: phaseBefore, To: 10}}, {Phase: Phase{Name: phaseFailing, From: 10, To: 130}}}
	var out bytes.Buffer
	if err := r.Chart(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if n := strings.Count(text, "```mermaid\nxychart-beta\n"); n != 4 {
		t.Errorf("%d charts, want 4:\n%s", n, text)
	}
	for line := range strings.Lines(text) {
		if points := strings.Count(line, ",") + 1; strings.Contains(line, "line [") && points > chartPoints {
			t.Errorf("%d points in a line, want at most %d", points, chartPoints)
		}
	}
	if want := "- 0.2 to 2.2 min: " + phaseFailing; !strings.Contains(text, want) {
		t.Errorf("no line %q in\n%s", want, text)
	}
}

func TestSqueeze(t *testing.T) {
	t.Parallel()
	values := make([]float64, 2*chartPoints)
	values[1] = 10
	mean, most := squeeze(values, nil), squeeze(values, func(a, b float64) float64 { return max(a, b) })
	if len(mean) != chartPoints || mean[0] != 5 || most[0] != 10 {
		t.Errorf("%d points, the first is %g as a mean and %g as the most; want %d, 5, 10", len(mean), mean[0], most[0], chartPoints)
	}
}

func TestFamilyTime_ReadsNamesWithBrackets(t *testing.T) {
	t.Parallel()
	pid, parent, took, ok := parseStat("42 (a) b (c) S 7 42 42 0 -1 4194304 1 0 0 0 5 6 1 2 20 0 1 0 100 0 0")
	if !ok || pid != 42 || parent != 7 || took != 14*tickTime {
		t.Errorf("pid %d, parent %d, time %v, %v; want 42, 7, %v", pid, parent, took, ok, 14*tickTime)
	}
	if _, _, _, ok := parseStat("42 a S 7"); ok {
		t.Error("a line without a name was read")
	}
}
