package emulator

import (
	"strconv"
	"time"
)

// place is where a message is.
type place int

const (
	ready   place = iota // can be consumed
	delayed              // waits for its delay, or for that of a nack
	leased               // consumed and not answered yet
	gone                 // acked, expired, or its queue deleted
)

// message is one message of a queue. Its fields belong to the server's lock.
type message struct {
	sequence uint64 // order of acceptance, in the whole server
	id       string
	key      string
	group    string // the order group of a FIFO queue
	origin   string // the queue it was published to
	payload  []byte
	priority int

	publishedAt time.Time
	enteredAt   time.Time // into the queue it is in
	dueAt       time.Time // end of the delay or of the lease

	place    place
	retrying bool // delayed by a nack
	receives int
	failures int

	position int // in the heap it is in
}

// messageID makes the id of the n-th message of a server. The run keeps ids of
// different runs apart.
func messageID(run uint32, n uint64) string {
	id := make([]byte, 0, 32)
	id = append(id, "msg_"...)
	id = appendHex(id, uint64(run), 8)
	return string(appendHex(id, n, 12))
}

func appendHex(b []byte, n uint64, width int) []byte {
	const digits = "0123456789abcdef"
	for shift := (width - 1) * 4; shift >= 0; shift -= 4 {
		b = append(b, digits[n>>shift&0xf])
	}
	return b
}

// byOrder holds what can be consumed: the higher priority first, then the
// earlier acceptance.
type byOrder []*message

func (h byOrder) Len() int { return len(h) }

func (h byOrder) Less(i, j int) bool {
	if h[i].priority != h[j].priority {
		return h[i].priority > h[j].priority
	}
	return h[i].sequence < h[j].sequence
}

func (h byOrder) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i, j
}

func (h *byOrder) Push(x any) {
	m := x.(*message)
	m.position = len(*h)
	*h = append(*h, m)
}

func (h *byOrder) Pop() any { return popLast((*[]*message)(h)) }

// byDue holds what waits for a moment: delays and leases.
type byDue []*message

func (h byDue) Len() int { return len(h) }

func (h byDue) Less(i, j int) bool {
	if !h[i].dueAt.Equal(h[j].dueAt) {
		return h[i].dueAt.Before(h[j].dueAt)
	}
	return h[i].sequence < h[j].sequence
}

func (h byDue) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i, j
}

func (h *byDue) Push(x any) {
	m := x.(*message)
	m.position = len(*h)
	*h = append(*h, m)
}

func (h *byDue) Pop() any { return popLast((*[]*message)(h)) }

func popLast(h *[]*message) *message {
	last := len(*h) - 1
	m := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return m
}

// appendTime appends a time as a JSON string.
func appendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}

func appendInt[N int | int64 | uint64](b []byte, n N) []byte {
	return strconv.AppendInt(b, int64(n), 10)
}
