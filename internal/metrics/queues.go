package metrics

import (
	"maps"
	"slices"

	"github.com/outbox-relay/outbox-relay/relay"
)

var queues = section{title: "The queue service"}

var (
	famRequests = queues.counter("requests_total",
		"Requests to the queue, by what came back: accepted, or the class of the failure.",
		"docs/guarantees.md has the table of classes. `refused` and `conflict` lead to dead letters, `endpoint_closed` is the API key or the credit, `queue_closed` a queue that does not exist.", "queue", "class")
	famDuration = queues.histogram("request_duration_seconds",
		"How long requests took, whatever came of them.", "", "queue")
	famEndpointClosed = queues.gauge("endpoint_closed",
		"1 for the class of the failure because of which nothing is sent to the endpoint but one probe at a time, 0 for the others.",
		"Messages wait in the table meanwhile; the slot moves on.", "class")
	famQueueClosed = queues.gauge("queue_closed",
		"1 while nothing is sent to a queue but one probe at a time. For queue other: how many queues.",
		"/readyz has the failure.", "queue")
	famPaused = queues.gauge("queue_paused",
		"1 while an operator has paused a queue. For queue other: how many queues.", "`outbox-relay queues resume NAME`.", "queue")
	famHeld = queues.gauge("queue_held",
		"1 while new messages of a queue wait in the table behind others. For queue other: how many queues.", "", "queue")
	famHeldLanes = queues.gauge("queue_held_lanes",
		"Ordering keys of a queue that wait behind a message which is tried again or holds them.", "`outbox-relay deferred keys --queue NAME`.", "queue")
	famDrainingLanes = queues.gauge("queue_draining_lanes",
		"Ordering keys of a queue whose messages go out of the table, one after the other.", "For long, while the queue is not held: a hot key. `outbox-relay deferred keys --queue NAME`.", "queue")
	famQueueInFlight = queues.gauge("queue_requests_in_flight",
		"Requests to a queue that are under way.", "", "queue")
	famQueueInMemory = queues.gauge("queue_messages_in_memory",
		"Messages of a queue that are in memory.", "", "queue")
)

// endpointClasses are the classes that can close the endpoint.
var endpointClasses = []string{
	relay.UnknownOutcome.String(), relay.Transient.String(), relay.RateLimited.String(), relay.EndpointClosed.String(),
}

// queueSum is the state of one queue, or of the other queues together.
type queueSum struct{ closed, paused, held, lanes, draining, inFlight, inMemory int }

func (sum *queueSum) add(q *relay.QueueState) {
	one := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	sum.closed += one(q.Gate.Closed)
	sum.paused += one(q.Paused)
	sum.held += one(q.Hold != "")
	sum.lanes += q.HeldLanes
	sum.draining += q.DrainingLanes
	sum.inFlight += q.InFlight
	sum.inMemory += q.InMemory
}

// queues exports what goes out, and what keeps it.
func (m *Metrics) queues(to sink, s *relay.State, c *relay.Counts) {
	to.states(famEndpointClosed, s.Router.Endpoint.Class, endpointClasses)
	sums := map[string]*queueSum{}
	for i := range c.Queues {
		q := &c.Queues[i]
		name := label(q.Name)
		sums[q.Name] = &queueSum{}
		for _, class := range slices.Sorted(maps.Keys(q.Requests)) {
			to.count(famRequests, q.Requests[class], name, class)
		}
		to.distribute(famDuration, q.Duration, name)
	}
	for i := range s.Router.Queues {
		q := &s.Router.Queues[i]
		sum := sums[m.relay.CountedAs(q.Name)]
		if sum == nil { // counted since the counts were read
			sum = sums[relay.OtherQueues]
		}
		sum.add(q)
	}
	for name, sum := range sums {
		name = label(name)
		to.put(famQueueClosed, float64(sum.closed), name)
		to.put(famPaused, float64(sum.paused), name)
		to.put(famHeld, float64(sum.held), name)
		to.put(famHeldLanes, float64(sum.lanes), name)
		to.put(famDrainingLanes, float64(sum.draining), name)
		to.put(famQueueInFlight, float64(sum.inFlight), name)
		to.put(famQueueInMemory, float64(sum.inMemory), name)
	}
}
