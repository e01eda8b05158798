package relay

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/tally"
)

// counts counts what happens to messages since the process started, beside
// [totals]: a few atomic additions for each request and each batch of outcomes.
// It is safe for concurrent use.
type counts struct {
	received                             atomic.Uint64
	live, fromTable                      *tally.Histogram // from the commit to its acceptance
	deferred, dead                       byReason
	duplicates                           atomic.Uint64
	batches, writing                     *tally.Histogram
	failedWrites                         atomic.Uint64
	messages, claims, letters, withdrawn atomic.Uint64 // that retention removed
	retainedAt                           atomic.Int64  // in nanoseconds

	queues sync.Map // by name: *queueCounts
	full   atomic.Bool
	other  *queueCounts

	mu   sync.Mutex // guards adding to queues
	room int        // queues that may be added
}

// queueCounts counts what happens to the messages of one queue.
type queueCounts struct {
	requests   [Refused + 1]atomic.Uint64 // by class; accepted in the place of no class
	duration   *tally.Histogram
	dispatched atomic.Uint64
}

// Bounds of the histograms. Requests have those that OpenTelemetry recommends for
// messaging; the latency goes on to the hours that an outage may take.
var (
	requestBounds = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	latencyBounds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
	writeBounds   = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	batchBounds   = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}
)

func newCounts(queues int) *counts {
	return &counts{
		live: tally.NewHistogram(latencyBounds...), fromTable: tally.NewHistogram(latencyBounds...),
		batches: tally.NewHistogram(batchBounds...), writing: tally.NewHistogram(writeBounds...),
		deferred: newByReason(reasonHeld, reasonScheduled), dead: newByReason(reasonExhausted, reasonCrashed),
		other: newQueueCounts(), room: queues,
	}
}

func newQueueCounts() *queueCounts {
	return &queueCounts{duration: tally.NewHistogram(requestBounds...)}
}

// queue returns the counts of a queue. When so many have counts of their own, the
// others share theirs: what counts queues must stay small, whatever the
// application writes.
func (c *counts) queue(name string) *queueCounts {
	if q, ok := c.queues.Load(name); ok {
		return q.(*queueCounts)
	}
	if c.full.Load() || name == OtherQueues {
		return c.other
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if q, ok := c.queues.Load(name); ok {
		return q.(*queueCounts)
	}
	if c.room == 0 {
		c.full.Store(true)
		return c.other
	}
	c.room--
	q := newQueueCounts()
	c.queues.Store(strings.Clone(name), q) // the row's text must not live as long
	return q
}

// request counts a request that has come back, or was given up.
func (c *counts) request(m *message, began, ended time.Time, err error) {
	var failure *PublishError
	if err != nil {
		failure = asPublishError(err)
	}
	if !failure.sent() {
		return
	}
	q := c.queue(m.row.Queue)
	q.duration.Time(ended.Sub(began))
	q.requests[failure.counted()].Add(1)
	if failure == nil {
		c.accepted(m, ended)
	}
}

// counted is the class under which a request is counted; 0 for an accepted one.
func (e *PublishError) counted() Class {
	switch {
	case e == nil:
		return 0
	case e.Class <= 0 || e.Class > Refused:
		return Transient
	}
	return e.Class
}

// accepted counts how long a message took that the queue has accepted.
func (c *counts) accepted(m *message, at time.Time) {
	since := m.row.CommittedAt
	if since.IsZero() {
		since = m.row.CreatedAt
	}
	switch {
	case since.IsZero():
	case m.cached:
		c.fromTable.Time(at.Sub(since))
	default:
		c.live.Time(at.Sub(since))
	}
}

// outcomes counts outcomes that are durable.
func (c *counts) outcomes(batch []*outcome) {
	for _, o := range batch {
		switch o.state {
		case dispatched:
			c.queue(o.row().Queue).dispatched.Add(1)
			if o.duplicate {
				c.duplicates.Add(1)
			}
		case deferred:
			c.deferred.add(o.reason)
		case dead:
			c.dead.add(o.reason)
		case postponed, requeued, withdrawn, released:
		}
	}
}

// write counts an attempt to make a batch of outcomes durable.
func (c *counts) write(batch int, took time.Duration, err error) {
	if err != nil {
		c.failedWrites.Add(1)
		return
	}
	c.batches.Observe(float64(batch))
	c.writing.Time(took)
}

// retained counts what a round of retention has removed.
func (c *counts) retained(now time.Time, n removed, err error) {
	c.messages.Add(uint64(n.messages))
	c.claims.Add(uint64(n.claims))
	c.letters.Add(uint64(n.deadLetters))
	c.withdrawn.Add(uint64(n.withdrawn))
	if err == nil {
		c.retainedAt.Store(now.UnixNano())
	}
}

// byReason counts by reason, of which each has its place from the beginning. The
// names of classes are among them.
type byReason map[string]*atomic.Uint64

func newByReason(reasons ...string) byReason {
	b := byReason{}
	for class := UnknownOutcome; class <= Refused; class++ {
		b[class.String()] = new(atomic.Uint64)
	}
	for _, reason := range append(reasons, OtherReasons) {
		b[reason] = new(atomic.Uint64)
	}
	return b
}

func (b byReason) add(reason string) {
	n := b[reason]
	if n == nil {
		n = b[OtherReasons]
	}
	n.Add(1)
}

func (b byReason) read() map[string]uint64 {
	all := make(map[string]uint64, len(b))
	for reason, n := range b {
		all[reason] = n.Load()
	}
	return all
}
