package admin

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outbox-relay/outbox-relay/relay"
)

const (
	// requestSpan is the time of whose requests the page and /status tell.
	requestSpan = time.Minute
	// failingShare is the part of the requests that may fail without a warning, and
	// slowAnswer how long one of a hundred may take: as in the alerts
	// OutboxRelayRequestsFail and OutboxRelayRequestsSlow.
	failingShare = 0.1
	slowAnswer   = 5.0 // seconds
	// fewFailed and fewRequests are so few that shares and quantiles say nothing.
	fewFailed, fewRequests = 5, 20
)

// Requests is what became of the requests to one queue in the last minute, as far
// as they have ended.
type Requests struct {
	// Queue may be [relay.OtherQueues].
	Queue string `json:"queue"`
	Count uint64 `json:"count"`
	// Failed counts those of them that the queue did not accept, and Class is the
	// [relay.Class] that most of these had.
	Failed uint64 `json:"failed"`
	Class  string `json:"class"`
	// MeanSeconds is how long a request took, and SlowSeconds what 99 of 100 did not
	// exceed, as far as the buckets of the metric tell.
	MeanSeconds float64 `json:"mean_seconds"`
	SlowSeconds float64 `json:"slow_seconds"`
}

// requests remembers what was counted in the last minute. The zero requests has
// seen nothing. It is safe for concurrent use.
type requests struct {
	mu       sync.Mutex
	readings []reading // the oldest one first
}

// reading is what a relay had counted at one moment.
type reading struct {
	at     time.Time
	queues []relay.QueueCounts
}

// add notes what has been counted, and forgets what is older than the span.
func (r *requests) add(now time.Time, queues []relay.QueueCounts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readings = slices.DeleteFunc(r.readings, func(old reading) bool { return now.Sub(old.at) > requestSpan })
	r.readings = append(r.readings, reading{at: now, queues: queues})
}

// lately returns the queues to which requests went between the first and the last
// reading, by name.
func (r *requests) lately() []Requests {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := []Requests{}
	if len(r.readings) == 0 {
		return all
	}
	before := map[string]*relay.QueueCounts{}
	for first, i := r.readings[0].queues, 0; i < len(first); i++ {
		before[first[i].Name] = &first[i]
	}
	for last, i := r.readings[len(r.readings)-1].queues, 0; i < len(last); i++ {
		if q := between(before[last[i].Name], &last[i]); q.Count > 0 {
			all = append(all, q)
		}
	}
	return all
}

// between is what was counted from one reading to another, of which the first may
// not have known the queue.
func between(first, last *relay.QueueCounts) Requests {
	if first == nil {
		first = new(relay.QueueCounts)
	}
	q := Requests{Queue: last.Name}
	var most uint64
	for class, n := range last.Requests {
		n -= first.Requests[class]
		q.Count += n
		if class == relay.Accepted {
			continue
		}
		q.Failed += n
		if n > most || n == most && n > 0 && class < q.Class {
			most, q.Class = n, class
		}
	}
	if took := since(last.Duration, first.Duration); took.Count > 0 {
		q.MeanSeconds = (last.Duration.Sum - first.Duration.Sum) / float64(took.Count)
		q.SlowSeconds = quantile(took, 0.99)
	}
	return q
}

// share is the part that failed.
func (q *Requests) share() float64 { return float64(q.Failed) / float64(max(q.Count, 1)) }

// Failing reports whether so many fail that a person should know.
func (q *Requests) Failing() bool { return q.Failed >= fewFailed && q.share() > failingShare }

// Slow reports whether answers take so long that a person should know.
func (q *Requests) Slow() bool { return q.Count >= fewRequests && q.SlowSeconds > slowAnswer }

// FailedPercent is the part that failed, for people.
func (q *Requests) FailedPercent() string {
	switch percent := 100 * q.share(); {
	case q.Failed == 0:
		return "0 %"
	case percent < 1:
		return "below 1 %"
	default:
		return fmt.Sprintf("%.0f %%", percent)
	}
}

// Mean is MeanSeconds for people.
func (q *Requests) Mean() string { return seconds(q.MeanSeconds) }

// Tail is SlowSeconds for people.
func (q *Requests) Tail() string { return seconds(q.SlowSeconds) }

// Number makes a number of the count.
func (q *Requests) Number() int64 { return int64(q.Count) }

// requests warns about requests that fail or are slow although the queue is open: most
// get through. A closed gate has its own finding, which says more.
func (e *examiner) requests(all []Requests) {
	closed := map[string]bool{}
	for i := range e.state.Router.Queues {
		closed[e.state.Router.Queues[i].Name] = e.state.Router.Queues[i].Gate.Closed
	}
	worst := slices.SortedFunc(slices.Values(all), func(a, b Requests) int { return cmp.Compare(b.share(), a.share()) })
	warnings := len(e.Warnings)
	for i := range worst {
		if q := &worst[i]; !e.state.Router.Endpoint.Closed && !closed[q.Queue] {
			e.requestsTo(q)
		}
	}
	e.Warnings = shorten(e.Warnings, warnings+mostQueues)
}

func (e *examiner) requestsTo(q *Requests) {
	if q.Failing() {
		e.warn("failing", nil, q.hint(), "queue %s: %d of %d requests failed in the last minute, most of them with %s", q.Queue, q.Failed, q.Count, q.Class)
	}
	if q.Slow() {
		e.warn("slow", nil, "the service or the network: at INFRAI_REQUEST_TIMEOUT a request is given up and sent again, with its key",
			"queue %s: requests take %s, one of a hundred more than %s, in the last minute", q.Queue, q.Mean(), q.Tail())
	}
}

// hint is what a person does about requests that fail.
func (q *Requests) hint() string {
	switch q.Class {
	case relay.Refused.String(), relay.Conflict.String():
		return "outbox-relay dead-letters list --queue " + q.Queue
	case relay.RateLimited.String():
		return "the queue asks for less: outbox-relay queues set " + q.Queue + " rate_per_second=N"
	}
	return "the service or the network: tell those who run it; each message is sent again, with its key"
}
