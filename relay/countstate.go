package relay

import (
	"slices"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/tally"
)

const (
	// OtherQueues is the name under which those queues are counted together that
	// came after Config.MetricsQueues others.
	OtherQueues = "other"
	// OtherReasons is the reason of what has another one than this version knows.
	OtherReasons = "other"
	// Accepted is the class of requests that the queue has accepted.
	Accepted = "accepted"
)

// Counts is what a relay has counted since its process started, beside [Totals].
type Counts struct {
	// Received counts messages that the source has shown; those among them that
	// had an outcome before, too.
	Received uint64
	// Live is how many seconds passed from the commit of a message until the queue
	// had accepted it, for those that went out of memory, Deferred the same for
	// those that had waited in the table. The commit is the server's clock; where
	// only the table was read, created_at stands for it.
	Live, Deferred tally.Distribution
	// Deferrals and DeadLetters count by reason.
	Deferrals, DeadLetters map[string]uint64
	PossibleDuplicates     uint64

	// Batches are the sizes of the batches of outcomes, Writes how many seconds
	// each took, and FailedWrites the attempts that came to nothing.
	Batches, Writes tally.Distribution
	FailedWrites    uint64

	// Removed counts what retention has removed, Retained is when a round of it went
	// through last.
	Removed  Removed
	Retained *time.Time

	Queues []QueueCounts
}

// QueueCounts counts what happened to one queue, or to the [OtherQueues].
type QueueCounts struct {
	Name       string
	Dispatched uint64
	// Requests counts by class: [Accepted], or the name of a [Class]. What could not
	// be sent is not a request.
	Requests map[string]uint64
	// Duration is how many seconds requests took.
	Duration tally.Distribution
}

// Removed counts rows that retention has removed.
type Removed struct{ Messages, Claims, DeadLetters, Withdrawn uint64 }

// Counts returns what was counted so far. It asks nobody, and may be called at any
// time from any goroutine.
func (r *Relay) Counts() Counts {
	c := r.counts
	return Counts{
		Received: c.received.Load(), Live: c.live.Read(), Deferred: c.fromTable.Read(),
		Deferrals: c.deferred.read(), DeadLetters: c.dead.read(), PossibleDuplicates: c.duplicates.Load(),
		Batches: c.batches.Read(), Writes: c.writing.Read(), FailedWrites: c.failedWrites.Load(),
		Removed: Removed{
			Messages: c.messages.Load(), Claims: c.claims.Load(), DeadLetters: c.letters.Load(), Withdrawn: c.withdrawn.Load(),
		},
		Retained: nanoseconds(c.retainedAt.Load()),
		Queues:   c.perQueue(),
	}
}

// CountedAs is the name under which a queue is counted: its own, or [OtherQueues].
func (r *Relay) CountedAs(queue string) string {
	if _, ok := r.counts.queues.Load(queue); ok {
		return queue
	}
	return OtherQueues
}

func (c *counts) perQueue() []QueueCounts {
	all := []QueueCounts{c.other.read(OtherQueues)}
	c.queues.Range(func(name, q any) bool {
		all = append(all, q.(*queueCounts).read(name.(string)))
		return true
	})
	slices.SortFunc(all, func(a, b QueueCounts) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (q *queueCounts) read(name string) QueueCounts {
	requests := map[string]uint64{Accepted: q.requests[0].Load()}
	for class := UnknownOutcome; class <= Refused; class++ {
		requests[class.String()] = q.requests[class].Load()
	}
	return QueueCounts{Name: name, Dispatched: q.dispatched.Load(), Requests: requests, Duration: q.duration.Read()}
}
