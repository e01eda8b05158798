package tally_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/internal/tally"
)

func TestHistogram_CountsUpToEachBound(t *testing.T) {
	t.Parallel()
	h := tally.NewHistogram(0.5, 1, 2)
	for _, value := range []float64{0.25, 0.5, 1.5, 2, 64} {
		h.Observe(value)
	}
	h.Time(1500 * time.Millisecond)
	h.Time(-time.Hour)
	want := tally.Distribution{
		Count: 7, Sum: 0.25 + 0.5 + 1.5 + 2 + 64 + 1.5,
		Bounds: []float64{0.5, 1, 2}, Buckets: []uint64{3, 3, 6},
	}
	if diff := cmp.Diff(want, h.Read()); diff != "" {
		t.Error(diff)
	}
}

func TestHistogram_LosesNothingAmongMany(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 1000
	h := tally.NewHistogram(1)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for range each {
				h.Observe(2)
			}
		})
	}
	group.Wait()
	if d := h.Read(); d.Count != workers*each || d.Sum != 2*workers*each || d.Buckets[0] != 0 {
		t.Errorf("got %+v", d)
	}
}

func BenchmarkHistogram(b *testing.B) {
	h := tally.NewHistogram(.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)
	for b.Loop() {
		h.Time(7 * time.Millisecond)
	}
}
