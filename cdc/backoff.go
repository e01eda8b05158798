package cdc

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff spreads attempts: each wait is drawn from a range that doubles.
type backoff struct {
	least, most time.Duration
	ceiling     time.Duration // of the last wait; 0 at the beginning
}

// next draws the next wait, from 0 up to the ceiling ("full jitter"), so that
// relays which lost the server at the same moment do not return together.
func (b *backoff) next() time.Duration {
	b.ceiling = min(max(b.least, 2*b.ceiling), b.most)
	return rand.N(b.ceiling) + 1
}

func (b *backoff) reset() { b.ceiling = 0 }

// around is d, give or take a part of it.
func around(d time.Duration, part float64) time.Duration {
	return time.Duration(float64(d) * (1 + part*(2*rand.Float64()-1)))
}

// sleep waits, and returns the context's error if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
