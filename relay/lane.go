package relay

import (
	"time"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// message is one message on its way through the relay: from the moment it is
// read until its outcome is durable. It belongs to the router, except while a
// worker has it in hand.
type message struct {
	row    *outbox.Row
	number uint64 // the source's number; meaningless for a message of the backlog

	backlog bool // came from the table deferred, not from the stream

	queue *queue
	lane  *lane // nil for a message without ordering key: it runs freely

	attempts  int  // requests sent
	conflicts int  // of these, answered with a conflict
	unknown   bool // an attempt ended without an answer
	outage    bool // waits because of the queue, not because of itself

	probesEndpoint bool // lets the relay know whether the endpoint is back
	probesQueue    bool // the same for its queue

	due  time.Time // while delayed: when it may go
	heap int       // while delayed: its place in the heap
	next *message  // while waiting: the one behind it
}

// list is a first-in, first-out list of messages, linked through next.
type list struct {
	head, tail *message
}

func (l *list) empty() bool { return l.head == nil }

func (l *list) push(m *message) {
	m.next = nil
	if l.tail == nil {
		l.head = m
	} else {
		l.tail.next = m
	}
	l.tail = m
}

func (l *list) pop() *message {
	m := l.head
	l.head = m.next
	if l.head == nil {
		l.tail = nil
	}
	m.next = nil
	return m
}

// laneKey names a lane.
type laneKey struct{ queue, orderingKey string }

// lane is the sequence of messages of one queue and ordering key. Its head is
// in the queue's ready list, delayed, or in the hands of a worker; the others
// wait here. A lane exists only while it has messages.
type lane struct {
	key     laneKey
	waiting list
}

// queue is what the router knows of one queue.
type queue struct {
	name     string
	gate     gate
	ready    list // messages that may go now, one at most of each lane
	inFlight int
	listed   bool // stands in the router's ring
}

// delayHeap orders delayed messages by the time when they are due.
type delayHeap []*message

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (h delayHeap) Len() int           { return len(h) }
func (h delayHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h delayHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heap, h[j].heap = i, j
}

func (h *delayHeap) Push(x any) {
	m := x.(*message)
	m.heap = len(*h)
	*h = append(*h, m)
}

func (h *delayHeap) Pop() any {
	old := *h
	m := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return m
}
