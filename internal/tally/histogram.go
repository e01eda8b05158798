// Package tally counts on hot paths: a few atomic additions for each event, no
// lock, no allocation, and a reading at any time.
package tally

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// Histogram counts values by size. It is safe for concurrent use.
type Histogram struct {
	bounds  []float64
	buckets []atomic.Uint64 // one for each bound, and one for what is larger
	sum     atomic.Uint64   // the bits of a float64
}

// NewHistogram returns a histogram with these upper bounds, which grow.
func NewHistogram(bounds ...float64) *Histogram {
	return &Histogram{bounds: bounds, buckets: make([]atomic.Uint64, len(bounds)+1)}
}

// Observe counts a value. The bounds are few, so looking at one after the other
// is as fast as anything.
func (h *Histogram) Observe(value float64) {
	at := len(h.bounds)
	for i, bound := range h.bounds {
		if value <= bound {
			at = i
			break
		}
	}
	h.buckets[at].Add(1)
	for {
		was := h.sum.Load()
		if h.sum.CompareAndSwap(was, math.Float64bits(math.Float64frombits(was)+value)) {
			return
		}
	}
}

// Time counts a duration in seconds. One that a clock which was set back makes
// negative counts as none.
func (h *Histogram) Time(d time.Duration) { h.Observe(max(0, d).Seconds()) }

// Distribution is what a histogram has counted.
type Distribution struct {
	Count uint64
	Sum   float64
	// Bounds are the upper bounds, and Buckets the values up to each of them, those
	// below the one before it among them.
	Bounds  []float64
	Buckets []uint64
}

// Read returns what was counted so far. The count is that of the buckets; a value
// that comes meanwhile may be in the sum already, or not yet.
func (h *Histogram) Read() Distribution {
	d := Distribution{Bounds: slices.Clone(h.bounds), Buckets: make([]uint64, len(h.bounds))}
	for i := range h.bounds {
		d.Count += h.buckets[i].Load()
		d.Buckets[i] = d.Count
	}
	d.Count += h.buckets[len(h.bounds)].Load()
	d.Sum = math.Float64frombits(h.sum.Load())
	return d
}
