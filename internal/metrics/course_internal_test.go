package metrics

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/internal/status"
)

func TestCourse_TimeToLoss(t *testing.T) {
	t.Parallel()
	const megabyte = 1 << 20
	c := new(course)
	at := func(after time.Duration, written int64, safe *int64) *float64 {
		f := &status.Figures{WrittenBytes: written}
		f.Slot = &status.Slot{SafeBytes: safe}
		return c.timeToLoss(noon.Add(after), f)
	}
	safe := new(int64(600 * megabyte))
	expect := func(what string, got *float64, want float64) {
		t.Helper()
		if got == nil || math.Abs(*got-want) > 0.001 && *got != want {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	if got := at(0, 100*megabyte, safe); got != nil {
		t.Errorf("the speed is known from one sample: %v", *got)
	}
	expect("nothing was written", at(15*time.Second, 100*megabyte, safe), math.Inf(1))
	expect("a megabyte a second", at(30*time.Second, 130*megabyte, safe), 600)
	if got := at(45*time.Second, 145*megabyte, nil); got != nil {
		t.Errorf("without a limit: %v", *got)
	}
	// Ten megabytes a second from here on: after five minutes nothing else counts.
	for i := range 25 {
		after := time.Duration(i+4) * 15 * time.Second
		got := at(after, int64(145+150*(i+1))*megabyte, safe)
		if i == 24 {
			expect("the last five minutes", got, 60)
		}
	}
	if got := at(time.Hour, megabyte, safe); got != nil {
		t.Errorf("on another server: %v", *got)
	}
	c.samples = nil
	f := &status.Figures{}
	if c.timeToLoss(noon, f) != nil || c.timeToLoss(noon.Add(time.Minute), f) != nil {
		t.Error("without a slot")
	}
}

// The horizon moves, stands still, and goes with the slot.
func TestCourse_HorizonHeld(t *testing.T) {
	t.Parallel()
	c := new(course)
	var got []float64
	for i, xmin := range []string{"700", "700", "700", "705", "", "705"} {
		held := c.horizonHeld(noon.Add(time.Duration(i)*15*time.Second), &xmin)
		if xmin == "" {
			held = c.horizonHeld(noon, nil)
		}
		if held == nil {
			held = new(-1.0)
		}
		got = append(got, *held)
	}
	if diff := cmp.Diff([]float64{0, 15, 30, 0, -1, 0}, got); diff != "" {
		t.Error(diff)
	}
}

// Sessions come and go; what they have written stays counted.
func TestCourse_OwnWAL(t *testing.T) {
	t.Parallel()
	c := new(course)
	for i, step := range []struct {
		writers []status.Writer
		want    float64
	}{
		{[]status.Writer{{Session: "a", WALBytes: 5000}}, 0}, // from before the first look
		{[]status.Writer{{Session: "a", WALBytes: 5100}, {Session: "b", WALBytes: 50}}, 150},
		{[]status.Writer{{Session: "b", WALBytes: 60}}, 160},
		{[]status.Writer{{Session: "b", WALBytes: 10}}, 160}, // somebody has reset the counts
		{[]status.Writer{}, 160},
		{[]status.Writer{{Session: "c", WALBytes: 7}}, 167},
	} {
		if got := c.ownWAL(step.writers); got == nil || *got != step.want {
			t.Errorf("step %d: got %v, want %v", i, got, step.want)
		}
	}
	if got := c.ownWAL(nil); got != nil {
		t.Errorf("on a server that does not count: %v", *got)
	}
}
