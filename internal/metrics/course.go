package metrics

import (
	"math"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/status"
)

// rateWindow is the time over which the speed of the WAL is measured.
const rateWindow = 5 * time.Minute

// course is what only several looks can tell: how things go. The zero course has
// seen nothing.
type course struct {
	samples []sample

	horizon      string // catalog_xmin
	horizonSince time.Time

	own     float64
	writers map[string]int64 // WAL by session
}

// sample is how much WAL there was at a time.
type sample struct {
	at      time.Time
	written int64
}

// see takes in a look, and adds what it shows beside the others.
func (c *course) see(s *sight) {
	s.timeToLoss = c.timeToLoss(s.at, s.figures)
	s.horizonHeld = c.horizonHeld(s.at, s.figures.Replication.CatalogXmin)
	s.own = c.ownWAL(s.figures.Writers)
}

// timeToLoss is how long what may still be written lasts, in seconds, at the speed
// of the last minutes. It is nil without a limit, and until the speed is known.
func (c *course) timeToLoss(now time.Time, f *status.Figures) *float64 {
	if n := len(c.samples); n > 0 && f.WrittenBytes < c.samples[n-1].written {
		c.samples = nil // another server, behind the one before
	}
	c.samples = append(c.samples, sample{now, f.WrittenBytes})
	for len(c.samples) > 2 && now.Sub(c.samples[1].at) >= rateWindow {
		c.samples = c.samples[1:]
	}
	first := c.samples[0]
	elapsed := now.Sub(first.at).Seconds()
	if elapsed <= 0 || f.Slot == nil || f.Slot.SafeBytes == nil {
		return nil
	}
	left := math.Inf(1)
	if written := f.WrittenBytes - first.written; written > 0 {
		left = float64(*f.Slot.SafeBytes) / (float64(written) / elapsed)
	}
	return &left
}

// horizonHeld is how long the oldest transaction has been the same for which the
// slot keeps the catalogs, in seconds; nil without one.
func (c *course) horizonHeld(now time.Time, xmin *string) *float64 {
	if xmin == nil {
		c.horizon = ""
		return nil
	}
	if *xmin != c.horizon {
		c.horizon, c.horizonSince = *xmin, now
	}
	held := now.Sub(c.horizonSince).Seconds()
	return &held
}

// ownWAL adds up what the sessions of relays have written since the first look:
// sessions end, and take their counts with them. It is nil where the server does
// not count.
func (c *course) ownWAL(writers []status.Writer) *float64 {
	if writers == nil {
		return nil
	}
	seen := make(map[string]int64, len(writers))
	for _, w := range writers {
		seen[w.Session] = w.WALBytes
		if c.writers != nil { // what was written before the first look does not count
			c.own += float64(max(0, w.WALBytes-c.writers[w.Session]))
		}
	}
	c.writers = seen
	own := c.own
	return &own
}
