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
	frozen atomic.Pointer[time.Time] // the real time that counts; nil is that of the machine
}

// Now returns the queue's time.
func (c *Clock) Now() time.Time {
	now := time.Now()
	if frozen := c.frozen.Load(); frozen != nil {
		now = *frozen
	}
	return now.Add(time.Duration(c.offset.Load()))
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

// Freeze stops the clock, for good: from now on only Advance moves it. What a
// test or a drill shows then happens at exactly its second, and no lease ends
// because the machine is busy.
func (c *Clock) Freeze() {
	now := time.Now()
	c.frozen.CompareAndSwap(nil, &now)
}

// Frozen reports whether only Advance moves the clock.
func (c *Clock) Frozen() bool { return c.frozen.Load() != nil }

// Offset is how far the clock was moved in all.
func (c *Clock) Offset() time.Duration {
	return time.Duration(c.offset.Load())
}
