package admin

import (
	"math"
	"sync"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/internal/tally"
	"github.com/outbox-relay/outbox-relay/relay"
)

const (
	// sampleEvery is the pause between two samples, of which an hour is kept.
	sampleEvery = 5 * time.Second
	samples     = int(time.Hour / sampleEvery)
)

// sample is what the charts show of one moment. What is not known is NaN.
type sample struct {
	at time.Time
	// received and dispatched are messages per second, since the sample before.
	received, dispatched float64
	// median and slow are seconds from the commit of a message until the queue had
	// accepted it, which half of them and 99 of 100 did not exceed.
	median, slow float64
	// waiting and deferred count messages, retained is in bytes.
	waiting, deferred, retained float64
	failing                     bool
	// backlog is the deferred messages as a look counted them that began at looked.
	backlog status.Count
	looked  time.Time
}

// history keeps the samples of the last hour in a ring. The zero history is empty.
type history struct {
	mu   sync.Mutex
	ring [samples]sample
	n    int // samples ever taken

	last   relay.Counts
	lastAt time.Time
}

// all returns the samples from the oldest one on.
func (h *history) all() []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := make([]sample, 0, min(h.n, samples))
	for i := max(0, h.n-samples); i < h.n; i++ {
		kept = append(kept, h.ring[i%samples])
	}
	return kept
}

// until returns all samples, and after them what is known now: the last rates, and
// what a report says.
func (h *history) until(now time.Time, report *status.Report) []sample {
	all := h.all()
	if len(all) == 0 || report == nil {
		return all
	}
	latest := all[len(all)-1]
	latest.at = now
	latest.see(report)
	return append(all, latest)
}

const (
	// paceOver is the time over which a pace is told, paceFrom the least.
	paceOver, paceFrom = 30 * time.Second, 10 * time.Second
)

// pace is how the deferred messages change, by the looks of the last half minute;
// nil if there are no two of them, or none lately.
func (h *history) pace(now time.Time) *status.Pace {
	all := h.all()
	if len(all) == 0 {
		return nil
	}
	newest := all[len(all)-1]
	if newest.looked.IsZero() || now.Sub(newest.looked) > paceOver {
		return nil
	}
	for _, s := range all {
		passed := newest.looked.Sub(s.looked)
		if passed < paceFrom {
			return nil
		}
		if passed <= paceOver {
			return status.PaceOf(newest.backlog, s.backlog, passed.Seconds())
		}
	}
	return nil
}

// add completes a sample with what happened since the one before, and keeps it.
func (h *history) add(s sample, counts relay.Counts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.received, s.dispatched, s.median, s.slow = math.NaN(), math.NaN(), math.NaN(), math.NaN()
	if passed := s.at.Sub(h.lastAt).Seconds(); !h.lastAt.IsZero() && passed > 0 {
		s.received = float64(counts.Received-h.last.Received) / passed
		s.dispatched = float64(dispatched(&counts)-dispatched(&h.last)) / passed
		latency := since(together(counts.Live, counts.Deferred), together(h.last.Live, h.last.Deferred))
		s.median, s.slow = quantile(latency, 0.5), quantile(latency, 0.99)
	}
	h.ring[h.n%samples] = s
	h.n++
	h.last, h.lastAt = counts, s.at
}

// sample notes how things are now.
func (p *page) sample(now time.Time) {
	state := p.State()
	s := sample{at: now, waiting: math.NaN(), deferred: math.NaN(), retained: math.NaN()}
	s.failing = !Ready(&p.server.cfg, &state, nil).OK
	if report := p.server.known(now, knownFor); report != nil {
		s.see(report)
	}
	counts := p.Counts()
	p.server.requests.add(now, counts.Queues)
	p.server.history.add(s, counts)
	verdict := p.server.ready(&state)
	p.health.note(p.server.log, &verdict)
}

// see takes over what a report says.
func (s *sample) see(report *status.Report) {
	s.waiting, s.deferred, s.retained = float64(report.WithoutOutcome.Count), float64(report.Deferred.Count), math.NaN()
	s.backlog, s.looked = report.Deferred, report.Looked
	if report.Slot != nil && report.Slot.RetainedBytes != nil {
		s.retained = float64(*report.Slot.RetainedBytes)
	}
}

// latest is the report of the last look that is over; nil if there is none, or one
// that is too old.
func (l *lookout) latest(now time.Time, old time.Duration) *status.Report {
	s := l.newest()
	if s == nil || s.err != nil || now.Sub(s.began) > old {
		return nil
	}
	return s.report.(*Look).Report
}

func dispatched(c *relay.Counts) (n uint64) {
	for i := range c.Queues {
		n += c.Queues[i].Dispatched
	}
	return n
}

// together adds two distributions with the same bounds.
func together(a, b tally.Distribution) tally.Distribution {
	return combine(a, b, func(x, y uint64) uint64 { return x + y })
}

// since takes away what an earlier distribution had counted.
func since(now, earlier tally.Distribution) tally.Distribution {
	return combine(now, earlier, func(x, y uint64) uint64 { return x - y })
}

func combine(a, b tally.Distribution, with func(x, y uint64) uint64) tally.Distribution {
	d := tally.Distribution{Count: with(a.Count, b.Count), Bounds: a.Bounds, Buckets: make([]uint64, len(a.Buckets))}
	for i := range a.Buckets {
		var other uint64
		if i < len(b.Buckets) {
			other = b.Buckets[i]
		}
		d.Buckets[i] = with(a.Buckets[i], other)
	}
	return d
}

// quantile is the value which this part of the values does not exceed, as far as
// the buckets tell: within one of them values are taken as spread evenly. NaN
// without values; the largest bound if it is above that.
func quantile(d tally.Distribution, part float64) float64 {
	if d.Count == 0 || len(d.Bounds) == 0 {
		return math.NaN()
	}
	rank := part * float64(d.Count)
	below, from := 0.0, 0.0
	for i, bound := range d.Bounds {
		upTo := float64(d.Buckets[i])
		if upTo >= rank && upTo > below {
			return from + (bound-from)*(rank-below)/(upTo-below)
		}
		below, from = upTo, bound
	}
	return d.Bounds[len(d.Bounds)-1]
}
