package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// moment is a time in milliseconds since the start. 0 is never.
type moment int32

func milliseconds(d time.Duration) moment { return moment(d / time.Millisecond) }

// String is in seconds, as the lines of the report are.
func (m moment) String() string { return fmt.Sprintf("%.3fs", float64(m)/1000) }

// part is something that can be broken; several are a set.
type part uint32

const (
	processes  part = 1 << iota // the relays
	server                      // Postgres
	statements                  // the way of the relays' statements to it
	stream                      // the way of its WAL to the relays
	theSlot                     // the slot itself
	requests                    // the way of requests to the queue
	machine                     // the processor, for which the judge itself had to wait
	suspended                   // a relay that was frozen goes on where it was
	firstQueue
)

// marking is what a mark needs, and the slot to follow. A machine that stands
// still now and then is no disturbance: it makes bounds longer.
const marking = processes | server | statements | stream | theSlot

func queuePart(number int) part { return firstQueue << number }

func allQueues() (all part) {
	for i := range queues {
		all |= queuePart(i)
	}
	return all
}

// sending is what a message of a queue needs to be accepted.
func sending(queue int) part { return marking | requests | queuePart(queue) }

// disturbance is something that was done to some parts.
type disturbance struct {
	parts      part
	name       string
	detail     string
	begin, end moment // end is never while it lasts
	crash      bool   // of the server: what it had not flushed is as it was before
}

func (d *disturbance) overlaps(from, to moment) bool {
	return d.begin <= to && (d.end == 0 || d.end >= from)
}

// history is all that was done. It is safe for concurrent use.
type history struct {
	report *Report

	mu       sync.Mutex
	all      []*disturbance // in the order of their beginnings
	sessions []moment       // when the relays' sessions began, as their logs say
}

// session notes that a session began.
func (h *history) session(at moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sessions = append(h.sessions, at)
}

// sessionOf is when the session began that is the last one at a moment; 0 if it
// is not known.
func (h *history) sessionOf(at moment) (began moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sessions {
		if s <= at {
			began = max(began, s)
		}
	}
	return began
}

// begin notes a disturbance that lasts until end is called.
func (h *history) begin(d disturbance) (end func()) {
	h.report.fault(d.name, d.detail)
	return h.beginQuietly(d)
}

// beginQuietly does not count it as a fault.
func (h *history) beginQuietly(d disturbance) (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.begin = max(1, h.report.moment(time.Now()))
	kept := &d
	h.all = append(h.all, kept)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		kept.end = max(kept.begin, h.report.moment(time.Now()))
	}
}

// stalled notes that the machine stood still for a while.
func (h *history) stalled(what string, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.report.moment(time.Now())
	kept := &disturbance{parts: machine, name: "machine", detail: what, begin: max(1, now-milliseconds(d)), end: max(1, now)}
	at, _ := slices.BinarySearchFunc(h.all, kept.begin, func(d *disturbance, begin moment) int { return cmp.Compare(d.begin, begin) })
	h.all = slices.Insert(h.all, at, kept)
	h.report.stalled(d)
}

// calmSince is the end of the last disturbance of any of the parts, as known at
// a moment: that very moment while one lasts, 0 if there was none.
func (h *history) calmSince(parts part, now moment) (since moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.all {
		switch {
		case d.parts&parts == 0 || d.begin > now:
		case d.end == 0 || d.end > now:
			return now
		default:
			since = max(since, d.end)
		}
	}
	return since
}

// stood is how long the machine stood still between two moments.
func (h *history) stood(from, to moment) (total moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.all {
		if d.parts&machine != 0 && d.overlaps(from, to) {
			total += min(d.end, to) - max(d.begin, from)
		}
	}
	return total
}

// longestCalm is the longest time between two moments in which none of the
// parts was disturbed.
func (h *history) longestCalm(parts part, from, to moment) (longest moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	free := from // nothing lasts longer than this, of what began so far
	for _, d := range h.all {
		if d.parts&parts == 0 || !d.overlaps(from, to) {
			continue
		}
		longest = max(longest, d.begin-free)
		if d.end == 0 {
			return longest
		}
		free = max(free, d.end)
	}
	return max(longest, to-free)
}

// first is the first disturbance of the parts between two moments.
func (h *history) first(parts part, from, to moment) (found disturbance, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.all {
		if d.parts&parts != 0 && d.overlaps(from, to) {
			return *d, true
		}
	}
	return disturbance{}, false
}

// crashed reports whether the server crashed between two moments.
func (h *history) crashed(from, to moment) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.all {
		if d.crash && d.overlaps(from, to) {
			return true
		}
	}
	return false
}

// between are all disturbances between two moments.
func (h *history) between(from, to moment) (found []disturbance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.all {
		if d.overlaps(from, to) {
			found = append(found, *d)
		}
	}
	return found
}

// String is for a timeline.
func (d disturbance) String() string {
	end := "lasts"
	if d.end != 0 {
		end = "until " + d.end.String()
	}
	return strings.TrimSpace(d.name + " " + d.detail + ", " + end)
}
