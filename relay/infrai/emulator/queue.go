package emulator

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// queue is one queue and its messages. It belongs to the server's lock.
type queue struct {
	queueSettings
	createdAt time.Time

	messages map[string]*message
	ready    byOrder
	waiting  byDue
	// arrivals are the messages in the order in which they entered, for
	// retention; what has left is skipped when it comes to the front.
	arrivals []arrival
	// accepted holds the keys of a FIFO queue's five-minute window.
	accepted keyring
}

// arrival is the moment at which a message entered a queue. A redriven message
// has several.
type arrival struct {
	message *message
	at      time.Time
}

// queueSettings are what create takes.
type queueSettings struct {
	name           string
	fifo           bool
	deadLetters    string
	maxRetries     int
	retention      time.Duration
	visibility     time.Duration
	enablePriority bool
}

func newQueue(settings queueSettings, now time.Time) *queue {
	return &queue{queueSettings: settings, createdAt: now, messages: map[string]*message{}}
}

// add puts a message into the queue, to be seen after delay.
func (q *queue) add(m *message, delay time.Duration, now time.Time) {
	m.enteredAt = now
	q.messages[m.id] = m
	q.arrivals = append(q.arrivals, arrival{m, now})
	if delay > 0 {
		q.wait(m, delayed, now.Add(delay))
		return
	}
	q.offer(m)
}

// offer makes a message ready.
func (q *queue) offer(m *message) {
	m.place, m.retrying = ready, false
	heap.Push(&q.ready, m)
}

// wait holds a message until due.
func (q *queue) wait(m *message, p place, due time.Time) {
	m.place, m.dueAt = p, due
	heap.Push(&q.waiting, m)
}

// take removes a message from where it waits; it stays a message of the queue.
func (q *queue) take(m *message) {
	switch m.place {
	case ready:
		heap.Remove(&q.ready, m.position)
	case delayed, leased:
		heap.Remove(&q.waiting, m.position)
	case gone:
	}
}

// remove ends a message's life in this queue.
func (q *queue) remove(m *message) {
	q.take(m)
	m.place = gone
	delete(q.messages, m.id)
}

// due takes out the next message whose delay or lease has ended, or returns nil.
func (q *queue) due(now time.Time) *message {
	if len(q.waiting) == 0 || q.waiting[0].dueAt.After(now) {
		return nil
	}
	return heap.Pop(&q.waiting).(*message)
}

// expire drops the messages that are older than the retention and returns
// their number.
func (q *queue) expire(now time.Time) (expired int) {
	for len(q.arrivals) > 0 {
		a := q.arrivals[0]
		here := q.holds(a)
		if here && now.Sub(a.at) < q.retention {
			break
		}
		if here {
			q.remove(a.message)
			expired++
		}
		q.arrivals[0] = arrival{}
		q.arrivals = q.arrivals[1:]
	}
	q.compact()
	return expired
}

// compact forgets arrivals that have left behind one that stays.
func (q *queue) compact() {
	if len(q.arrivals) > 2*len(q.messages)+1000 {
		q.arrivals = slices.DeleteFunc(q.arrivals, func(a arrival) bool { return !q.holds(a) })
	}
}

func (q *queue) holds(a arrival) bool {
	return q.messages[a.message.id] == a.message && a.message.enteredAt.Equal(a.at)
}

// next takes out up to most messages that a consumer may have now. In a FIFO
// queue nothing overtakes an earlier message of its group that is leased, waits
// for another try or, with block, is delayed.
func (q *queue) next(most int, block bool) []*message {
	if !q.fifo {
		return q.first(most, func(*message) bool { return true })
	}
	barriers := map[string]uint64{}
	for _, m := range q.waiting {
		if m.place == delayed && !m.retrying && !block {
			continue
		}
		if at, held := barriers[m.group]; !held || m.sequence < at {
			barriers[m.group] = m.sequence
		}
	}
	return q.first(most, func(m *message) bool {
		at, held := barriers[m.group]
		return !held || m.sequence < at
	})
}

// first takes out the first messages in order that may go.
func (q *queue) first(most int, may func(*message) bool) []*message {
	var chosen, passed []*message
	for len(chosen) < most && len(q.ready) > 0 {
		m := heap.Pop(&q.ready).(*message)
		if may(m) {
			chosen = append(chosen, m)
		} else {
			passed = append(passed, m)
		}
	}
	for _, m := range passed {
		heap.Push(&q.ready, m)
	}
	return chosen
}

// inOrder returns all messages in the order of their acceptance.
func (q *queue) inOrder() []*message {
	all := make([]*message, 0, len(q.messages))
	for _, m := range q.messages {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *message) int { return cmp.Compare(a.sequence, b.sequence) })
	return all
}

// counts is what stats answers.
type counts struct {
	ready, delayed, inFlight int
	oldestReady              time.Time
}

func (q *queue) counts() counts {
	c := counts{ready: len(q.ready)}
	for _, m := range q.waiting {
		if m.place == leased {
			c.inFlight++
		} else {
			c.delayed++
		}
	}
	for _, m := range q.ready {
		if c.oldestReady.IsZero() || m.enteredAt.Before(c.oldestReady) {
			c.oldestReady = m.enteredAt
		}
	}
	return c
}
