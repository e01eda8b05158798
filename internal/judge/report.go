package judge

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	First        int64
	AfterFailure int64 // the queue had not accepted the message
	Repeats      int64 // it had
}

// Withdrawals are the messages that were deleted after their commit.
type Withdrawals struct {
	Deleted    int64 // at any time: they may have been sent before or not
	Deferred   int64 // while they were deferred: they should not be sent
	UnderWay   int64 // of these, sent all the same: a relay had them in its hands
	AfterCrash int64 // of these, sent all the same: the server had crashed
}

// Report is what a run came to.
type Report struct {
	Seed     uint64
	Requests Requests
	// Duplicates are the requests for keys that the queue had accepted, by what
	// made the relay send them.
	Duplicates map[string]int64
	// Transactions and Messages that were committed, and the transactions that
	// were rolled back or broke.
	Transactions, Messages, Aborted int64
	// Bodies that were compared with what was written.
	Bodies      int64
	Withdrawals Withdrawals
	// Statuses are the answers of the queue by HTTP status; "0" is none.
	Statuses map[string]int64
	// Faults counts what was done to the parts.
	Faults map[string]int
	// Sessions is the last epoch; Takeovers counts how often the slot was seen to
	// change hands.
	Sessions, Takeovers int64
	// MaxRSS is the largest resident memory of a relay in bytes, MaxFiles the
	// most descriptors, MaxRetained the most WAL behind the slot in bytes,
	// MaxDeferred the most rows that waited in the table, and MaxSlotAge how old
	// the end of the WAL was at most that the slot had reached, while Postgres
	// was well.
	MaxRSS, MaxFiles, MaxRetained, MaxDeferred int64
	MaxSlotAge                                 time.Duration
	// Lulls and Truces were judged; Stalls is how long the machine stood still,
	// and MaxOverload what it multiplied bounds on time by.
	Lulls, Truces int64
	Stalls        time.Duration
	MaxOverload   float64
	// DeadLetters at the end; Redriven and Discarded on the way.
	DeadLetters, Redriven, Discarded int64
	// Settled is how long the end took.
	Settled time.Duration
	// Violations are all broken promises, the first ones of each kind.
	Violations []Violation

	begun time.Time
	scale float64
	load  atomic.Uint64 // what overload multiplies bounds on time by, as bits
	note  func(string)  // told at once
	mu    sync.Mutex
	kinds map[string]int
}

func newReport(seed uint64, scale float64, note func(string)) *Report {
	return &Report{
		Seed: seed, Duplicates: map[string]int64{}, Faults: map[string]int{}, kinds: map[string]int{},
		begun: time.Now(), scale: scale, note: note,
	}
}

// slack multiplies bounds on time.
func (r *Report) slack() float64 { return r.scale * r.overload() }

// overload is 1 on a machine that is not overloaded.
func (r *Report) overload() float64 { return max(1, math.Float64frombits(r.load.Load())) }

// moment is the time of the run.
func (r *Report) moment(t time.Time) moment { return milliseconds(t.Sub(r.begun)) }

// time is the inverse of moment.
func (r *Report) time(m moment) time.Time { return r.begun.Add(time.Duration(m) * time.Millisecond) }

// kept is how many violations of one kind are kept.
const kept = 10

// violate tells of a broken promise, and reports whether it is one of those that
// are kept.
func (r *Report) violate(kind, format string, args ...any) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds[kind]++; r.kinds[kind] > kept {
		return false
	}
	v := Violation{At: time.Since(r.begun), Kind: kind, Text: fmt.Sprintf(format, args...)}
	r.Violations = append(r.Violations, v)
	r.tell(fmt.Sprintf("VIOLATION (seed %d) %s: %s", r.Seed, v.Kind, v.Text))
	return true
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

// say notes a line with its time.
func (r *Report) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell(fmt.Sprintf(format, args...))
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

func (r *Report) requests(count func(*Requests)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	count(&r.Requests)
}

func (r *Report) duplicate(cause string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Duplicates[cause]++
}

func (r *Report) read() { r.count(&r.Bodies) }

// count raises a figure by one.
func (r *Report) count(figure *int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*figure++
}

func (r *Report) stalled(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Stalls += d
}

// raise makes a figure at least n.
func raise[T int64 | float64 | time.Duration](r *Report, figure *T, n T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*figure = max(*figure, n)
}

// Table is the report for people.
func (r *Report) Table() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	line := func(label string, n int64) { fmt.Fprintf(&b, "  %-52s %12d\n", label, n) }
	fmt.Fprintf(&b, "\nseed %d, settled in %v\n", r.Seed, r.Settled.Round(time.Millisecond))
	line("transactions committed", r.Transactions)
	line("transactions rolled back or broken", r.Aborted)
	line("messages committed", r.Messages)
	line("messages deleted at any time", r.Withdrawals.Deleted)
	line("messages withdrawn while deferred", r.Withdrawals.Deferred)
	line("  of these sent all the same: in a relay's hands", r.Withdrawals.UnderWay)
	line("  of these sent all the same: the server crashed", r.Withdrawals.AfterCrash)
	line("dead letters redriven", r.Redriven)
	line("dead letters discarded", r.Discarded)
	line("dead letters at the end, as scripted", r.DeadLetters)
	line("requests, first of a key", r.Requests.First)
	line("requests after a failure", r.Requests.AfterFailure)
	line("requests for a key that was accepted", r.Requests.Repeats)
	for _, cause := range slices.Sorted(maps.Keys(r.Duplicates)) {
		line("  "+cause, r.Duplicates[cause])
	}
	line("bodies compared with what was written", r.Bodies)
	line("sessions", r.Sessions)
	line("takeovers seen", r.Takeovers)
	line("largest memory of a relay, KiB", r.MaxRSS>>10)
	line("most descriptors of a relay", r.MaxFiles)
	line("most WAL behind the slot, KiB", r.MaxRetained>>10)
	line("oldest end of WAL at the slot in good times, ms", r.MaxSlotAge.Milliseconds())
	line("most rows deferred", r.MaxDeferred)
	line("lulls judged: one queue dead, Postgres well", r.Lulls)
	line("truces judged: everything well", r.Truces)
	line("the machine stood still, ms", r.Stalls.Milliseconds())
	line("most overload of the machine, percent", int64(100*r.MaxOverload))
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

// add raises a figure by n.
func (r *Report) add(figure *int64, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*figure += int64(n)
}
