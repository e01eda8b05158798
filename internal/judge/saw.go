package judge

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

const publish = "queue.publish"

// clockSlack is what deliver_at may lose on its way through milliseconds.
const clockSlack = 5

// saw takes in a request that the queue got.
func (l *ledger) saw(e *emulator.Entry) {
	if e.Route != publish {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n, r := l.find(e.Key)
	if r == nil {
		l.report.violate("phantom", "%q was sent and never written", e.Key)
		return
	}
	at := l.report.moment(e.Time)
	if r.state == rolledBack {
		l.violate("phantom", e.Key, "sent and rolled back")
	}
	if at < r.due-clockSlack {
		l.violate("early", e.Key, "sent at %v, before its time, %v", at, r.due)
	}
	l.compare(r, e)
	l.count(n, r, e, at)
	if e.Outcome == emulator.Accepted {
		l.accept(r, e, at)
	}
	// The answer is on its way; what may still happen to it, marks judges.
	if e.Fault == 0 && e.Status == http.StatusOK {
		r.answered = at
		l.marks = append(l.marks, n)
	}
}

// accept notes an acceptance.
func (l *ledger) accept(r *row, e *emulator.Entry, at moment) {
	switch {
	case r.accepted != 0:
		l.violate("twice", e.Key, "accepted twice")
		return
	case l.sick(r):
		l.violate("judge", e.Key, "sick, and the queue took it")
	case r.discarded:
		l.violate("discarded", e.Key, "accepted after an operator gave it up")
	case r.state == withdrawn:
		l.judgeWithdrawn(r, e.Key, at)
	}
	l.unblock(r)
	l.taken[r.queue]++
	r.accepted, r.first = place(e), max(1, at)
}

// compare checks that all requests of a key carry the same bytes, and the first
// one what was written.
func (l *ledger) compare(r *row, e *emulator.Entry) {
	var body [8]byte
	if n, err := hex.Decode(body[:], []byte(e.BodySHA256)[:16]); err != nil || n != len(body) {
		l.report.violate("judge", "%s: digest %q", e.Key, e.BodySHA256)
	}
	if r.requests > 0 && r.body != body {
		l.violate("bytes", e.Key, "sent with different bytes")
	}
	if e.Outcome == emulator.Conflicting {
		l.violate("bytes", e.Key, "the queue knows the key with another body")
	}
	if r.requests == 0 && len(e.Body) > 0 { // the journal may have dropped it
		l.readBody(r, e)
	}
	r.body = body
}

// content is the body of a request.
type content struct {
	Delay    *int8  `json:"delay_seconds"`
	Priority *int8  `json:"priority"`
	Queue    string `json:"queue"`
	Key      string `json:"idempotency_key"`
	Payload  struct {
		Key  string `json:"key"`
		Fill string `json:"fill"`
	} `json:"payload"`
}

// readBody compares a body with what was written.
func (l *ledger) readBody(r *row, e *emulator.Entry) {
	var got content
	if err := json.Unmarshal(e.Body, &got); err != nil {
		l.violate("content", e.Key, "not the JSON that it should be: %v", err)
		return
	}
	switch {
	case got.Key != e.Key, got.Payload.Key != e.Key, got.Queue != queues[r.queue], e.Queue != got.Queue:
		l.violate("content", e.Key, "sent as %q with the payload of %q to %q", got.Key, got.Payload.Key, got.Queue)
	case len(got.Payload.Fill) != int(r.fill), strings.Trim(got.Payload.Fill, "x") != "":
		l.violate("content", e.Key, "the payload has %d bytes, want %d", len(got.Payload.Fill), r.fill)
	case orMinus(got.Delay) != r.delay, orMinus(got.Priority) != r.priority:
		l.violate("content", e.Key, "delay %d and priority %d, want %d and %d",
			orMinus(got.Delay), orMinus(got.Priority), r.delay, r.priority)
	}
	l.report.read()
}

func orMinus(n *int8) int8 {
	if n == nil {
		return -1
	}
	return *n
}

// count sorts requests by why they came.
func (l *ledger) count(n name, r *row, e *emulator.Entry, at moment) {
	switch {
	case r.requests == 0:
		l.report.requests(func(q *Requests) { q.First++ })
	case r.accepted == 0:
		l.report.requests(func(q *Requests) { q.AfterFailure++ })
	default:
		l.report.requests(func(q *Requests) { q.Repeats++ })
		l.repeats = append(l.repeats, repeat{name: n, key: e.Key, at: at, answered: r.answered})
	}
	r.requests++
}

// place is the place of an acceptance among all of a server: the end of the
// message's id. The journal itself is in the order in which answers were made.
func place(e *emulator.Entry) uint64 {
	if len(e.MessageIDs) != 1 {
		return 0
	}
	id := e.MessageIDs[0]
	n, err := strconv.ParseUint(id[max(0, len(id)-12):], 16, 64)
	if err != nil {
		return 0
	}
	return n
}
