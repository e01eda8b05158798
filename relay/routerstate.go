package relay

import (
	"slices"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/paused"
)

// RouterState is what is in memory, and what lets it out.
type RouterState struct {
	// At is when this was read. It stays behind State.At only when the router does
	// not answer at once.
	At time.Time `json:"at"`
	// Messages and Bytes count what was read and has no durable outcome: the
	// window.
	Messages      int `json:"messages"`
	MessagesLimit int `json:"messages_limit"`
	Bytes         int `json:"bytes"`
	BytesLimit    int `json:"bytes_limit"`
	// Oldest is when the oldest of these was read.
	Oldest *time.Time `json:"oldest"`
	// Cached counts the deferred messages that are in memory beside them.
	Cached int `json:"cached"`

	InFlight      int `json:"in_flight"`
	InFlightLimit int `json:"in_flight_limit"`
	// OldestRequest is when the oldest request began that is under way.
	OldestRequest *time.Time `json:"oldest_request"`

	Endpoint GateState    `json:"endpoint"`
	Queues   []QueueState `json:"queues"`
}

// GateState is whether requests may pass to the endpoint, or to a queue.
type GateState struct {
	Closed bool `json:"closed"`
	// Class is the [Class] of the failure that closed it, Since when it did, and
	// NextProbe when a request may try again.
	Class     string     `json:"class"`
	Since     *time.Time `json:"since"`
	NextProbe *time.Time `json:"next_probe"`
	// Failures counts the closing and the probes that failed since, Text is the
	// last failure, without its class if that is Class.
	Failures int    `json:"failures"`
	Text     string `json:"text"`
}

// Why is the class and the last failure, for people.
func (g GateState) Why() string {
	if g.Text == "" {
		return g.Class
	}
	return g.Class + ": " + g.Text
}

// QueueState is one queue that had messages since the session began.
type QueueState struct {
	Name string    `json:"name"`
	Gate GateState `json:"gate"`
	// Paused says that an operator stopped it, and the note who, when and why.
	Paused bool `json:"paused"`
	paused.Note
	RatePerSecond float64 `json:"rate_per_second"`
	InFlight      int     `json:"in_flight"`
	InFlightLimit int     `json:"in_flight_limit"`
	// InMemory counts its messages in memory that wait or are in flight, deferred
	// ones among them.
	InMemory int `json:"in_memory"`
	// Live counts those that were read and have no durable outcome, Cached the
	// deferred ones that are in memory: over all queues they are RouterState.Messages
	// and RouterState.Cached.
	Live   int `json:"live"`
	Cached int `json:"cached"`
	// Oldest is when the oldest message was read that has no durable outcome, and
	// OldestCached the same of the deferred ones in memory.
	Oldest       *time.Time `json:"oldest"`
	OldestCached *time.Time `json:"oldest_cached"`
	// Hold is held, draining or closing while new messages of the queue wait in the
	// table behind others; empty otherwise.
	Hold string `json:"hold"`
	// Waits is since when that has been so although nothing stands in the way of
	// the queue, as far as anybody has looked.
	Waits *time.Time `json:"waits"`
	// HeldLanes counts lanes that wait in the table on their own, behind a message that
	// waits for its time or for a person, and DrainingLanes those that are on their way
	// out of it, one message after the other, the first of them since DrainingSince. Of
	// all queues together [HeldLanesBound] are counted.
	HeldLanes     int        `json:"held_lanes"`
	DrainingLanes int        `json:"draining_lanes"`
	DrainingSince *time.Time `json:"draining_since"`
	// LastSuccess is when it answered a request last, LastReturn when a request of
	// it ended, whatever came of it.
	LastSuccess *time.Time `json:"last_success"`
	LastReturn  *time.Time `json:"last_return"`
}

// HeldLanesBound is where the lanes are counted no further that wait in the table.
const HeldLanesBound = 10_000

// routerPatience bounds what a look waits for the router, which is never held for
// long.
const (
	routerPatience = 100 * time.Millisecond
	routerPause    = time.Millisecond
)

// routerState looks into the router. One that does not let anybody in must not
// take whoever looks with it: then the last look counts.
func (s *session) routerState(now time.Time) RouterState {
	for deadline := now.Add(routerPatience); !s.router.mu.TryLock(); <-time.After(routerPause) {
		if time.Now().After(deadline) {
			if last := s.seen.Load(); last != nil {
				return *last
			}
			return RouterState{Queues: []QueueState{}}
		}
	}
	state := s.router.state(now)
	s.router.mu.Unlock()
	state.OldestRequest = orNullTime(s.oldestRequest())
	s.seen.Store(&state)
	return state
}

// oldestRequest is when the oldest request began that is under way.
func (s *session) oldestRequest() (oldest time.Time) {
	for i := range s.workers {
		if began := s.workers[i].pulse.Busy(); !began.IsZero() && (oldest.IsZero() || began.Before(oldest)) {
			oldest = began
		}
	}
	return oldest
}

// state describes the router. The caller has the lock.
func (r *router) state(now time.Time) RouterState {
	s := RouterState{
		At: now, Messages: r.messages, MessagesLimit: r.cfg.WindowMessages, Bytes: r.bytes, BytesLimit: r.cfg.WindowBytes,
		Cached: len(r.cache), InFlight: r.inFlight, InFlightLimit: r.cfg.MaxInFlight,
		Endpoint: r.endpoint.state(), Queues: make([]QueueState, 0, len(r.queues)),
	}
	lanes := r.heldLanes()
	var oldest time.Time
	for _, q := range r.queues {
		s.Queues = append(s.Queues, QueueState{
			Name: q.name, Gate: q.gate.state(), Paused: q.settings.Paused, Note: q.settings.Pause, RatePerSecond: q.settings.RatePerSecond,
			InFlight: q.inFlight, InFlightLimit: r.limit(q), InMemory: q.inMemory,
			Live: q.live.count(), Cached: q.fetched.count(),
			Oldest: orNullTime(q.live.oldest()), OldestCached: orNullTime(q.fetched.oldest()),
			Hold: q.hold.String(), Waits: r.waits(now, q), HeldLanes: lanes[q.name].held,
			DrainingLanes: lanes[q.name].draining, DrainingSince: orNullTime(lanes[q.name].since),
			LastSuccess: orNullTime(q.lastSuccess), LastReturn: orNullTime(q.lastReturn),
		})
		if came := q.live.oldest(); !came.IsZero() && (oldest.IsZero() || came.Before(oldest)) {
			oldest = came
		}
	}
	s.Oldest = orNullTime(oldest)
	slices.SortFunc(s.Queues, func(a, b QueueState) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// waits notes when somebody sees for the first time that a queue is held which
// might send.
func (r *router) waits(now time.Time, q *queue) *time.Time {
	switch {
	case q.hold == nil || !loadable(q) || r.endpoint.closed || q.gate.closed:
		q.waits = time.Time{}
	case q.waits.IsZero():
		q.waits = now
	}
	return orNullTime(q.waits)
}

// laneCount counts lanes of a queue that have messages in the table on their own.
type laneCount struct {
	held, draining int
	since          time.Time // of the one that has been draining longest
}

// heldLanes counts the lanes of each queue, up to a bound: there can be very many.
func (r *router) heldLanes() map[string]laneCount {
	lanes := map[string]laneCount{}
	looks := HeldLanesBound
	for key, l := range r.lanes {
		if looks--; looks < 0 {
			break
		}
		if l.hold == nil {
			continue
		}
		n := lanes[key.queue]
		if l.hold.state == held && !r.parked[l.hold] {
			n.held++
		} else {
			n.draining++
			if n.since.IsZero() || l.hold.drains.Before(n.since) {
				n.since = l.hold.drains
			}
		}
		lanes[key.queue] = n
	}
	return lanes
}

func (g *gate) state() GateState {
	if !g.closed {
		return GateState{}
	}
	s := GateState{
		Closed: true, Class: g.reason.String(), Since: orNullTime(g.since), NextProbe: orNullTime(g.until), Failures: g.failures,
	}
	if g.failure != nil {
		s.Text = storable(g.failure.beside(s.Class))
	}
	return s
}

var holdStates = [...]string{held: "held", draining: "draining", closing: "closing"}

// String is the hold's state; empty without a hold.
func (h *hold) String() string {
	if h == nil {
		return ""
	}
	return holdStates[h.state]
}
