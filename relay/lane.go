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
	number uint64    // the source's number; meaningless for a cached one
	taken  time.Time // when it came into memory
	since  time.Time // when it became ready, the last time

	// cached says that it was loaded from the table deferred: its row stays
	// there until it has an outcome, so it can be dropped from memory at any
	// time. Other messages are live: the slot waits for them.
	cached bool

	queue *queue
	lane  *lane // nil for a message without ordering key: it runs freely
	place place
	hold  *hold // for a cached one: what it was loaded for; in a tail: whose

	attempts  int           // requests sent, in all sessions
	charged   int           // of these, failures while others got through
	failure   *PublishError // the last one
	failedAt  time.Time     // the first failure since it came into memory
	unknownAt time.Time     // the first attempt, in all sessions, that ended without an answer
	watched   time.Time     // others that get through after this make its next failure its own
	blamed    bool          // its last failure was its own
	outage    bool          // delayed because of the queue, not because of itself
	goingBack bool          // its row in the table changes, and that is not durable yet

	probesEndpoint bool // lets the relay know whether the endpoint is back
	probesQueue    bool // the same for its queue

	due        time.Time // while delayed: when it may go
	heap       int       // while delayed: its place in the heap
	next, prev *message  // while in a list: its neighbours
}

// place says where the router has a message.
type place uint8

const (
	placeNone    place = iota
	placeWaiting       // behind others of its lane
	placeReady         // in its queue's ready list
	placeDelayed       // in the heap
	placeFlying        // in the hands of a worker
	placeTail          // behind a hold that is about to end
)

// list is a first-in, first-out list of messages from which any may leave.
type list struct {
	head, tail *message
	n          int
}

func (l *list) empty() bool { return l.head == nil }

func (l *list) push(m *message) {
	m.next, m.prev = nil, l.tail
	if l.tail == nil {
		l.head = m
	} else {
		l.tail.next = m
	}
	l.tail = m
	l.n++
}

func (l *list) pop() *message {
	m := l.head
	l.remove(m)
	return m
}

func (l *list) remove(m *message) {
	if m.prev == nil {
		l.head = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		l.tail = m.prev
	} else {
		m.next.prev = m.prev
	}
	m.next, m.prev = nil, nil
	l.n--
}

// laneKey names a lane.
type laneKey struct{ queue, orderingKey string }

// lane is the sequence of messages of one queue and ordering key. Its head is
// in the queue's ready list, delayed, or in the hands of a worker; the others
// wait here. A lane exists only while it has messages or is held.
type lane struct {
	key     laneKey
	head    *message // the one that is not waiting; nil if there is none in memory
	waiting list
	hold    *hold // not nil while the table has rows of this lane alone
}

// live reports whether the head of the lane never was in the table.
func (l *lane) live() bool { return l.hold == nil && l.head != nil && !l.head.cached }

// busy reports whether the lane has live messages in memory, which are before
// anything of it in the table.
func (l *lane) busy() bool {
	if l.head != nil && !l.head.cached {
		return true
	}
	for m := l.waiting.tail; m != nil; m = m.prev {
		if !m.cached {
			return true
		}
	}
	return false
}

// idle reports whether the lane can be forgotten.
func (l *lane) idle() bool { return l.hold == nil && l.head == nil && l.waiting.empty() }

// wholeQueue is the ordering key of the one lane of a queue that is ordered as a
// whole. No text of Postgres has this byte.
const wholeQueue = "\x00"

// queue is what the router knows of one queue.
type queue struct {
	name        string
	gate        gate
	settings    Settings
	pace        pace
	ramp        ramp
	ready       list // messages that may go now, one at most of each lane
	inFlight    int
	inMemory    int       // all of its messages, live and cached
	listed      bool      // stands in the router's ring
	lastSuccess time.Time // when a request got through, the last time
	lastReturn  time.Time // when a request ended, the last time
	waits       time.Time // for State: since when it is held and might send
	live        ages      // of its live messages, until their outcome is durable
	fetched     ages      // of its messages from the table, while they are in memory
	hold        *hold     // not nil while the table may have rows of any of its lanes

	oneLane    bool // all of its messages are one lane
	reordering bool // that changes as soon as nothing of it is in memory
}

// ordered reports whether messages with this ordering key are in a lane.
func (q *queue) ordered(orderingKey string) bool { return q.oneLane || orderingKey != "" }

// laneKey names the lane of an ordering key.
func (q *queue) laneKey(orderingKey string) laneKey {
	if q.oneLane {
		return laneKey{q.name, wholeQueue}
	}
	return laneKey{q.name, orderingKey}
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
