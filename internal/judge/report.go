package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Violation is a broken promise.
type Violation struct {
	At   time.Duration // since the start
	Kind string
	Text string
}

// Requests are the publish requests by why they came.
type Requests struct {
	First           int64
	AfterFailure    int64 // the queue had not accepted the message
	AfterLostAnswer int64 // it had, and a scripted fault kept the answer
	AfterAnswer     int64 // it had said so: a relay, a connection or the server broke after that
}

// Report is what a run came to.
type Report struct {
	Seed     uint64
	Requests Requests
	// Transactions and Messages that were committed, and the transactions that
	// were rolled back or broke.
	Transactions, Messages, Aborted int64
	// Statuses are the answers of the queue by HTTP status; "0" is none.
	Statuses map[string]int64
	// Faults counts what was done to the parts.
	Faults map[string]int
	// MaxRSS is the largest resident memory of a relay in bytes, MaxFiles the
	// most descriptors, MaxRetained the most WAL behind the slot in bytes, and
	// MaxDeferred the most rows that waited in the table.
	MaxRSS, MaxFiles, MaxRetained, MaxDeferred int64
	// Withdrawn messages were deleted after their commit.
	Withdrawn int64
	// DeadLetters at the end; Settled is how long the end took.
	DeadLetters int64
	Settled     time.Duration
	// Violations are all broken promises, the first ones of each kind.
	Violations []Violation

	begun time.Time
	note  func(string) // told at once
	mu    sync.Mutex
	kinds map[string]int
}

func newReport(seed uint64, note func(string)) *Report {
	return &Report{Seed: seed, Faults: map[string]int{}, kinds: map[string]int{}, begun: time.Now(), note: note}
}

// kept is how many violations of one kind are kept.
const kept = 10

func (r *Report) violate(kind, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds[kind]++; r.kinds[kind] > kept {
		return
	}
	v := Violation{At: time.Since(r.begun), Kind: kind, Text: fmt.Sprintf(format, args...)}
	r.Violations = append(r.Violations, v)
	r.tell("VIOLATION " + kind + ": " + v.Text)
}

// fault notes what is done to a part.
func (r *Report) fault(name, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Faults[name]++
	r.tell(strings.TrimSpace(name + " " + detail))
}

// happened reports whether something was done to a part.
func (r *Report) happened(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Faults[name] > 0
}

// tell notes a line with its time. The caller holds mu.
func (r *Report) tell(text string) {
	r.note(fmt.Sprintf("%s %7.2f %s", time.Now().UTC().Format("15:04:05.000"), time.Since(r.begun).Seconds(), text))
}

func (r *Report) transaction(s state, rows int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s != committed {
		r.Aborted++
		return
	}
	r.Transactions++
	r.Messages += int64(rows)
}

// raise makes a figure at least n.
func (r *Report) raise(figure *int64, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*figure = max(*figure, n)
}

// Table is the report for people.
func (r *Report) Table() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	line := func(label string, n int64) { fmt.Fprintf(&b, "  %-44s %12d\n", label, n) }
	fmt.Fprintf(&b, "\nseed %d, settled in %v\n", r.Seed, r.Settled.Round(time.Millisecond))
	line("transactions committed", r.Transactions)
	line("transactions rolled back or broken", r.Aborted)
	line("messages committed", r.Messages)
	line("messages withdrawn", r.Withdrawn)
	line("dead letters, as scripted", r.DeadLetters)
	line("requests, first of a key", r.Requests.First)
	line("requests after a failure", r.Requests.AfterFailure)
	line("requests after an answer that was kept back", r.Requests.AfterLostAnswer)
	line("requests after an answer that was sent", r.Requests.AfterAnswer)
	line("largest memory of a relay, KiB", r.MaxRSS>>10)
	line("most descriptors of a relay", r.MaxFiles)
	line("most WAL behind the slot, KiB", r.MaxRetained>>10)
	line("most rows deferred", r.MaxDeferred)
	for _, status := range slices.Sorted(maps.Keys(r.Statuses)) {
		line("answers with status "+status, r.Statuses[status])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		line("fault: "+name, int64(r.Faults[name]))
	}
	for _, kind := range slices.Sorted(maps.Keys(r.kinds)) {
		line("VIOLATIONS: "+kind, int64(r.kinds[kind]))
	}
	return b.String()
}
