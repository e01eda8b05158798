package bench

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// books are what a queue keeps of what it accepted, so that it can be held
// against what was committed. A key is the name of a stream and the number of
// the message in it, such as "main.k7-42". Each stream has one writer, so its
// numbers are in commit order; one whose name after the dot begins with k is the
// sequence of an ordering key.
//
// Memory does not grow with the messages, except for the waits of those that
// ask for it.
type books struct {
	mu      sync.Mutex
	streams map[string]*stream
	counts  Counts
	waits   []Wait
}

// Counts are the sums of the books.
type Counts struct {
	// Requests is every request that was read, whatever became of it.
	Requests int `json:"requests"`
	// Accepted is the keys that were accepted, of each group of streams.
	Accepted map[string]int `json:"accepted"`
	// Repeated is the acceptances of keys that had been accepted before.
	Repeated int `json:"repeated"`
	// Breaches is the first acceptances before an earlier one of the same
	// ordering key; Example is the first of them.
	Breaches int    `json:"breaches"`
	Example  string `json:"example,omitempty"`
}

// total is every accepted key.
func (c Counts) total() (n int) {
	for _, accepted := range c.Accepted {
		n += accepted
	}
	return n
}

// Wait is how long a message took from the start of its transaction, both in
// microseconds, the latter since 1970.
type Wait struct {
	Stream string `json:"stream"`
	At     int64  `json:"at"`
	Took   int64  `json:"took"`
}

// Books are the books for somebody else.
type Books struct {
	Counts
	// Streams is the number of accepted keys of each stream.
	Streams map[string]int `json:"streams"`
	Waits   []Wait         `json:"waits"`
}

// stream is which numbers of a stream were accepted: all below next, and some
// above it.
type stream struct {
	next  int
	early map[int]bool
}

func newBooks() *books {
	return &books{streams: map[string]*stream{}, counts: Counts{Accepted: map[string]int{}}}
}

// parseKey takes a key apart.
func parseKey(key string) (stream string, n int, err error) {
	dash := strings.LastIndexByte(key, '-')
	if dash < 0 {
		return "", 0, fmt.Errorf("key %q has no number", key)
	}
	n, err = strconv.Atoi(key[dash+1:])
	return key[:dash], n, err
}

// group is the first part of a stream's name, and ordered whether it is the
// sequence of an ordering key.
func group(stream string) (name string, ordered bool) {
	name, rest, _ := strings.Cut(stream, ".")
	return name, strings.HasPrefix(rest, "k")
}

func (b *books) request() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts.Requests++
}

// accept enters a key, and how long it took if wait is not nil.
func (b *books) accept(key string, wait *Wait) error {
	name, n, err := parseKey(key)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.streams[name]
	if s == nil {
		s = &stream{early: map[int]bool{}}
		b.streams[name] = s
	}
	if n < s.next || s.early[n] {
		b.counts.Repeated++
		return nil
	}
	belongs, ordered := group(name)
	if ordered && n > s.next {
		b.breach(key, s.next)
	}
	b.counts.Accepted[belongs]++
	if wait != nil {
		wait.Stream = name
		b.waits = append(b.waits, *wait)
	}
	s.take(n)
	return nil
}

func (b *books) breach(key string, expected int) {
	if b.counts.Breaches == 0 {
		b.counts.Example = fmt.Sprintf("%s was accepted while number %d was next", key, expected)
	}
	b.counts.Breaches++
}

func (s *stream) take(n int) {
	s.early[n] = true
	for s.early[s.next] {
		delete(s.early, s.next)
		s.next++
	}
}

// copyCounts returns the sums so far.
func (b *books) copyCounts() Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := b.counts
	counts.Accepted = maps.Clone(counts.Accepted)
	return counts
}

// copyAll returns everything.
func (b *books) copyAll() Books {
	all := Books{Counts: b.copyCounts(), Streams: map[string]int{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, s := range b.streams {
		all.Streams[name] = s.next + len(s.early)
	}
	all.Waits = slices.Clone(b.waits)
	return all
}

// against compares the books with the number of committed messages of each
// stream. Numbers start at 0, so equal numbers of keys are equal keys as long as
// none is beyond the last committed one.
func (b Books) against(committed map[string]int) (lost, phantom int) {
	for name, n := range committed {
		lost += max(0, n-b.Streams[name])
	}
	for name, n := range b.Streams {
		phantom += max(0, n-committed[name])
	}
	return lost, phantom
}
