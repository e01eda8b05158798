package relay

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Passes count that found nothing; what was found belongs together until two of
// them in a row.
func TestSweeps(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	next := now.Add(time.Minute)
	var s sweeps
	steps := []struct {
		name string
		do   func()
		want SweepState
	}{
		{"before the first", func() {}, SweepState{}},
		{"the first part finds", func() { s.begin(); s.found(3) }, SweepState{Found: 3}},
		{"the rest does not", func() { s.found(0); s.passed(now) }, SweepState{Passed: &now, Found: 3}},
		{"it rests", func() { s.rest(next) }, SweepState{Passed: &now, Next: &next, Found: 3}},
		{"nothing", func() { s.begin(); s.passed(next) }, SweepState{Passed: &next, Found: 3, Clean: 1}},
		{"more", func() { s.found(2); s.passed(next) }, SweepState{Passed: &next, Found: 5}},
		{"nothing, twice", func() { s.passed(next); s.passed(next) }, SweepState{Passed: &next, Found: 5, Clean: 2}},
		{"another time", func() { s.found(1); s.passed(next) }, SweepState{Passed: &next, Found: 1}},
	}
	for _, step := range steps {
		step.do()
		if diff := cmp.Diff(&step.want, s.read()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", step.name, diff)
		}
	}
}
