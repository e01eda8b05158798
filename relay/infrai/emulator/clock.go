package emulator

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Clock is the time of the emulated queue: real time plus what it was moved
// forward. Delays, leases, windows and retention follow it; scripted delays of
// answers do not. It is safe for concurrent use.
type Clock struct {
	offset atomic.Int64
}

// Now returns the queue's time.
func (c *Clock) Now() time.Time {
	return time.Now().Add(time.Duration(c.offset.Load()))
}

// Advance moves the clock forward. It never goes back, because leases that
// ended would come to life again.
func (c *Clock) Advance(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("advance by %s: the clock only moves forward", d)
	}
	c.offset.Add(int64(d))
	return nil
}

// Offset is how far the clock was moved in all.
func (c *Clock) Offset() time.Duration {
	return time.Duration(c.offset.Load())
}
