package emulator

import (
	"strconv"
	"sync/atomic"
)

// Counters count since the start.
type Counters struct {
	// Requests are all calls, and how many of each route.
	Requests int64            `json:"requests"`
	Routes   map[string]int64 `json:"routes"`
	// Statuses are the answers by HTTP status; "0" is no answer.
	Statuses map[string]int64 `json:"statuses"`
	// Accepted messages came in for the first time; Replayed, Deduplicated and
	// Conflicting calls repeated a key.
	Accepted     int64 `json:"accepted"`
	Replayed     int64 `json:"replayed"`
	Deduplicated int64 `json:"deduplicated"`
	Conflicting  int64 `json:"conflicting"`
	// Refused calls were answered no by the queue, Faults are scripted faults
	// that took part.
	Refused int64 `json:"refused"`
	Faults  int64 `json:"faults"`
	// What became of messages: Consumed counts every lease.
	Consumed     int64 `json:"consumed"`
	Acked        int64 `json:"acked"`
	Nacked       int64 `json:"nacked"`
	DeadLettered int64 `json:"dead_lettered"`
	Redriven     int64 `json:"redriven"`
	Expired      int64 `json:"expired"`
}

type counters struct {
	routes   map[*route]*atomic.Int64
	unrouted atomic.Int64
	statuses [600]atomic.Int64
	outcomes map[Outcome]*atomic.Int64
	faults   atomic.Int64

	accepted, consumed, acked, nacked, deadLettered, redriven, expired atomic.Int64
}

func newCounters() *counters {
	c := &counters{routes: map[*route]*atomic.Int64{discoveryRoute: {}}, outcomes: map[Outcome]*atomic.Int64{}}
	for _, r := range routes {
		c.routes[r] = &atomic.Int64{}
	}
	for _, o := range []Outcome{Accepted, Replayed, Deduplicated, Conflicting, Done, Refused, Failed} {
		c.outcomes[o] = &atomic.Int64{}
	}
	return c
}

// count counts a call.
func (c *counters) count(call *call, status int, fault uint64) {
	if call.route == nil {
		c.unrouted.Add(1)
	} else {
		c.routes[call.route].Add(1)
	}
	c.outcomes[call.outcome].Add(1)
	if status < len(c.statuses) {
		c.statuses[status].Add(1)
	}
	if fault != 0 {
		c.faults.Add(1)
	}
}

// Counters returns what was counted so far.
func (s *Server) Counters() Counters {
	c := s.counters
	all := Counters{
		Requests: c.unrouted.Load(), Routes: map[string]int64{}, Statuses: map[string]int64{},
		Accepted: c.accepted.Load(), Replayed: c.outcomes[Replayed].Load(), Deduplicated: c.outcomes[Deduplicated].Load(),
		Conflicting: c.outcomes[Conflicting].Load(), Refused: c.outcomes[Refused].Load(), Faults: c.faults.Load(),
		Consumed: c.consumed.Load(), Acked: c.acked.Load(), Nacked: c.nacked.Load(),
		DeadLettered: c.deadLettered.Load(), Redriven: c.redriven.Load(), Expired: c.expired.Load(),
	}
	for r, n := range c.routes {
		if n := n.Load(); n > 0 {
			all.Routes[r.id] = n
			all.Requests += n
		}
	}
	for status := range c.statuses {
		if n := c.statuses[status].Load(); n > 0 {
			all.Statuses[strconv.Itoa(status)] = n
		}
	}
	return all
}
