package emulator

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Outcome is what became of a request.
type Outcome string

// The outcomes.
const (
	// Accepted: a message came into the queue for the first time.
	Accepted Outcome = "accepted"
	// Replayed: the key was known, and its answer was given again.
	Replayed Outcome = "replayed"
	// Deduplicated: a FIFO queue dropped it within its five-minute window.
	Deduplicated Outcome = "deduplicated"
	// Conflicting: the key was known with another body.
	Conflicting Outcome = "conflicting"
	// Done: a call that accepts no message did what it should.
	Done Outcome = "done"
	// Refused: the queue said no.
	Refused Outcome = "refused"
	// Failed: a scripted fault answered, and the queue never saw the call.
	Failed Outcome = "failed"
)

// Entry is one request in the journal.
type Entry struct {
	// Number counts the requests from 1, without gaps.
	Number uint64 `json:"number"`
	// Time is when it came in, by the queue's clock.
	Time time.Time `json:"time"`
	// Route is the call's name, such as queue.publish; empty if there is none.
	Route string `json:"route"`
	// Queue and Key are what the call named.
	Queue string `json:"queue,omitempty"`
	Key   string `json:"key,omitempty"`
	// Status is the HTTP status of the answer; 0 if none was sent.
	Status int `json:"status"`
	// Outcome is what the queue made of it.
	Outcome Outcome `json:"outcome"`
	// MessageIDs are the messages that it put into the queue.
	MessageIDs []string `json:"message_ids,omitempty"`
	// Fault is the number of the fault that took part; 0 without one.
	Fault uint64 `json:"fault,omitempty"`
	// Connection is the client's address: the same as long as its connection is.
	Connection string `json:"connection"`
	// Proto is the version of HTTP.
	Proto string `json:"proto"`
	// BodySHA256 is the digest of the body in hex.
	BodySHA256 string `json:"body_sha256"`
	// Body and Header are what was sent, without the API key; only kept with
	// the setting journal=full.
	Body   []byte      `json:"-"`
	Header http.Header `json:"header,omitempty"`

	digest   digest
	messages []Message
	size     int
}

// MarshalJSON writes the body as text.
func (e Entry) MarshalJSON() ([]byte, error) {
	type plain Entry
	return json.Marshal(struct {
		plain
		Body string `json:"body,omitempty"`
	}{plain(e), string(e.Body)})
}

// Message is a message that a queue accepted.
type Message struct {
	ID    string
	Key   string
	Queue string
	// Payload is the JSON as it was sent; nil unless journal=full.
	Payload []byte
	// Sequence is its place in the order of acceptance, over all queues.
	Sequence uint64
}

// Journal keeps the last requests. It is safe for concurrent use.
type Journal struct {
	mu      sync.Mutex
	entries []Entry // a ring: entry n stands at (n-1) % most
	last    uint64  // number of the newest
	bare    uint64  // up to this number, bodies are dropped
	bytes   int
	most    int           // entries
	space   int           // bytes
	news    chan struct{} // closed by the next entry; nil if nobody waits
}

func newJournal(entries, bytes int) *Journal {
	return &Journal{most: entries, space: bytes}
}

// add numbers an entry and keeps it.
func (j *Journal) add(e Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	e.Number = j.last
	e.size = e.measure()
	j.bytes += e.size
	if len(j.entries) < j.most {
		j.entries = append(j.entries, e)
	} else {
		j.bytes -= j.at(j.last).size
		*j.at(j.last) = e
	}
	for j.bytes > j.space && j.bare < j.last {
		j.bare++
		j.strip(j.bare)
	}
	if j.news != nil {
		close(j.news)
		j.news = nil
	}
}

func (j *Journal) at(number uint64) *Entry {
	return &j.entries[(number-1)%uint64(j.most)]
}

func (j *Journal) first() uint64 {
	return j.last - uint64(len(j.entries)) + 1
}

// strip drops what is large of an entry.
func (j *Journal) strip(number uint64) {
	if number < j.first() {
		return
	}
	e := j.at(number)
	j.bytes -= e.size
	e.Body, e.Header, e.size = nil, nil, 0
	for i := range e.messages {
		e.messages[i].Payload = nil
	}
}

// measure counts the bytes that the journal keeps for this entry alone.
func (e *Entry) measure() int {
	size := len(e.Body)
	for name, values := range e.Header {
		size += len(name)
		for _, value := range values {
			size += len(value)
		}
	}
	for i := range e.messages {
		size += len(e.messages[i].Payload)
	}
	return size
}

// Last is the number of the newest entry; 0 before the first.
func (j *Journal) Last() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

// Entries returns up to most entries behind number after, oldest first; 0 for
// most means all. Entries that the journal had to forget are missing at the
// front: the first number tells.
func (j *Journal) Entries(after uint64, most int) []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []Entry
	for n := max(after+1, j.first()); n <= j.last && (most == 0 || len(found) < most); n++ {
		found = append(found, j.at(n).whole())
	}
	return found
}

// whole fills in what is only computed for readers. The slices are its own.
func (e Entry) whole() Entry {
	e.messages = slices.Clone(e.messages)
	for _, m := range e.messages {
		e.MessageIDs = append(e.MessageIDs, m.ID)
	}
	e.BodySHA256 = hex.EncodeToString(e.digest[:])
	return e
}

// Wait returns once there is an entry behind number after, or ctx has ended.
func (j *Journal) Wait(ctx context.Context, after uint64) error {
	for {
		j.mu.Lock()
		if j.last > after {
			j.mu.Unlock()
			return nil
		}
		if j.news == nil {
			j.news = make(chan struct{})
		}
		news := j.news
		j.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Accepted returns the messages that the queue accepted, in the order of
// acceptance, whether or not they were consumed since; an empty name means all
// queues. It reads the journal, and so knows no more than that.
func (s *Server) Accepted(queue string) []Message {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	var found []Message
	for i := range s.journal.entries {
		for _, m := range s.journal.entries[i].messages {
			if queue == "" || m.Queue == queue {
				found = append(found, m)
			}
		}
	}
	slices.SortFunc(found, func(a, b Message) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return found
}

// record writes a call into the journal and the counters. It happens before the
// answer goes out, so that who has the answer finds the entry.
func (s *Server) record(c *call, status int, fault uint64) {
	s.counters.count(c, status, fault)
	if c.settings.Journal == off {
		return
	}
	e := Entry{
		Time: c.now, Queue: c.queue, Key: c.key, Status: status, Outcome: c.outcome, Fault: fault,
		Connection: c.request.RemoteAddr, Proto: c.request.Proto, digest: c.digest,
	}
	if c.route != nil {
		e.Route = c.route.id
	}
	full := c.settings.Journal == "full"
	if full {
		e.Body = slices.Clone(c.body)
		e.Header = c.request.Header.Clone()
		e.Header.Del("Authorization")
	}
	for _, m := range c.accepted {
		kept := Message{ID: m.id, Key: m.key, Queue: m.origin, Sequence: m.sequence}
		if full {
			kept.Payload = m.payload
		}
		e.messages = append(e.messages, kept)
	}
	s.journal.add(e)
}
