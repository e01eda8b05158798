// Package waits is how long to wait before the next attempt, and waiting that
// ends with a context.
package waits

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff spreads attempts: each wait is drawn from a range that doubles. It is
// for one goroutine at a time.
type Backoff struct {
	Least, Most time.Duration // bounds of the range's end; Most is at least Least, which is more than 0

	end time.Duration // of the range of the last wait; 0 at the beginning
}

// Next draws the next wait: more than 0, up to the end of the range ("full
// jitter"), so that relays which lost the server at the same moment do not return
// together.
func (b *Backoff) Next() time.Duration {
	b.end = min(max(b.Least, 2*b.end), b.Most)
	return rand.N(b.end) + 1
}

// Reset lets the next wait be one of the first range again.
func (b *Backoff) Reset() { b.end = 0 }

// Around is d, give or take a part of it at random: those who wait for the same
// thing do not all ask at the same moment.
func Around(d time.Duration, part float64) time.Duration {
	return time.Duration(float64(d) * (1 + part*(2*rand.Float64()-1)))
}

// Sleep waits for d and reports whether ctx lasted that long.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
