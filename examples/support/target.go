package main

import (
	"io"
	"net/http"
	"strconv"
	"sync"
)

// target is the system that tickets come from. It knows keys: a reply that comes
// again is answered as the first time. Each ticket may have a script of what the
// next requests meet instead.
type target struct {
	mu       sync.Mutex
	scripts  map[string][]step
	requests map[string][]request
	replies  map[string]map[string]string // by ticket and key
}

// request is one that came.
type request struct {
	key, attempt, text string
}

// step is what a request meets.
type step struct {
	status     int    // 0 is an answer that is lost after the reply was taken
	retryAfter string // seconds
}

var lost = step{}

func newTarget() *target {
	return &target{scripts: map[string][]step{}, requests: map[string][]request{}, replies: map[string]map[string]string{}}
}

// meet says what the next requests for a ticket meet.
func (t *target) meet(ticket string, steps ...step) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.scripts[ticket] = steps
}

// ServeHTTP takes a reply, or does what the script says.
func (t *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return // the desk hung up
	}
	// Else package http would repeat a request whose answer is lost by itself,
	// and this drill wants to see the desk do it.
	w.Header().Set("Connection", "close")
	ticket, key := r.URL.Path[1:], r.Header.Get("Idempotency-Key")
	switch next, scripted := t.next(ticket, request{key, r.Header.Get("Attempt"), string(text)}); {
	case !scripted:
		t.take(ticket, key, string(text))
	case next == lost:
		t.take(ticket, key, string(text))
		panic(http.ErrAbortHandler) // ends the connection
	default:
		if next.retryAfter != "" {
			w.Header().Set("Retry-After", next.retryAfter)
		}
		w.WriteHeader(next.status)
	}
}

// next notes a request and takes its step from the script.
func (t *target) next(ticket string, r request) (next step, scripted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests[ticket] = append(t.requests[ticket], r)
	script := t.scripts[ticket]
	if len(script) == 0 {
		return step{}, false
	}
	t.scripts[ticket] = script[1:]
	return script[0], true
}

// take makes a reply, if there is none with this key.
func (t *target) take(ticket, key, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.replies[ticket] == nil {
		t.replies[ticket] = map[string]string{}
	}
	if _, known := t.replies[ticket][key]; !known {
		t.replies[ticket][key] = text
	}
}

// seen is what a ticket has met.
type seen struct {
	requests, replies, keys int
	texts                   int    // different ones
	attempts                string // the numbers, in order
	text                    string // of the reply
}

func (t *target) seen(ticket string) seen {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := seen{requests: len(t.requests[ticket]), replies: len(t.replies[ticket])}
	keys, texts := map[string]bool{}, map[string]bool{}
	for i, r := range t.requests[ticket] {
		keys[r.key], texts[r.text] = true, true
		if i > 0 {
			s.attempts += " "
		}
		s.attempts += r.attempt
	}
	s.keys, s.texts = len(keys), len(texts)
	for _, text := range t.replies[ticket] {
		s.text = text
	}
	return s
}

// times is the same step so many times.
func times(n int, s step) []step {
	steps := make([]step, n)
	for i := range steps {
		steps[i] = s
	}
	return steps
}

func refuse(status int) step { return step{status: status} }

func limit(seconds int) step {
	return step{status: http.StatusTooManyRequests, retryAfter: strconv.Itoa(seconds)}
}

// total is the number of replies to all tickets.
func (t *target) total() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, replies := range t.replies {
		n += len(replies)
	}
	return n
}
