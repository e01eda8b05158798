package emulator

import (
	"context"
	"crypto/sha256"
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
	sequence uint64
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

// Journal keeps the last requests. It is safe for concurrent use.
type Journal struct {
	mu      sync.Mutex
	entries []Entry // a ring, once it is full
	oldest  int     // where the ring starts
	last    uint64  // number of the newest
	bytes   int
	most    int // entries
	space   int // bytes
	news    chan struct{}
}

func newJournal(entries, bytes int) *Journal {
	return &Journal{most: entries, space: bytes, news: make(chan struct{})}
}

// add numbers an entry and keeps it.
func (j *Journal) add(e Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	e.Number = j.last
	j.bytes += e.size
	j.put(e)
	for i := 0; j.bytes > j.space && i < len(j.entries); i++ {
		j.strip(&j.entries[(j.oldest+i)%len(j.entries)])
	}
	close(j.news)
	j.news = make(chan struct{})
}
