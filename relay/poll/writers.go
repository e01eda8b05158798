package poll

import (
	"cmp"
	"time"
)

// writers follows the transactions that may still commit messages, and so knows
// which numbers are settled: those that no open transaction can commit any more.
//
// It is told, again and again, the last number that was given out and then, read
// after that, who holds the lock that a writer takes before its first number.
// Whoever did not hold it the time before gets numbers only above the last
// number of the time before.
type writers struct {
	last int64 // as of the last time
	open map[string]writer
	// ended is what those who have ended since the time before can have committed:
	// numbers above this one only.
	ended int64
}

// writer is an open transaction that holds the lock.
type writer struct {
	transaction string // its virtual id
	pid         int    // 0 if it is prepared
	above       int64  // all of its numbers are above this
	since       time.Time
	before      bool // it was there at the first time, nobody knows since when
}

// observe takes in what was read: the last number, and who held the lock after
// that.
func (w *writers) observe(now time.Time, last int64, holders []writer) {
	fresh := writer{above: w.last, since: now, before: w.open == nil}
	// A transaction that is prepared goes on under another name: any of those
	// whose names are gone may be the one.
	prepared := fresh
	w.ended = last
	for _, g := range w.gone(holders) {
		w.ended = min(w.ended, g.above)
		prepared.above = min(prepared.above, g.above)
		prepared.before = prepared.before || g.before
		if g.since.Before(prepared.since) {
			prepared.since = g.since
		}
	}
	open := make(map[string]writer, len(holders))
	for _, h := range holders {
		known, seen := w.open[h.transaction]
		if !seen {
			known = fresh
			if h.pid == 0 {
				known = prepared
			}
		}
		known.transaction, known.pid = h.transaction, h.pid
		open[h.transaction] = known
	}
	w.last, w.open = last, open
}

// gone are the writers that are not among the holders any more.
func (w *writers) gone(holders []writer) []writer {
	still := make(map[string]bool, len(holders))
	for _, h := range holders {
		still[h.transaction] = true
	}
	var gone []writer
	for name, known := range w.open {
		if !still[name] {
			gone = append(gone, known)
		}
	}
	return gone
}

// settled is the highest number up to which everything that will ever commit
// could be seen when the holders were read.
func (w *writers) settled() int64 {
	settled := w.last
	for _, o := range w.open {
		settled = min(settled, o.above)
	}
	return settled
}

// settledWithout is the same without regard to those that were open already at
// that time.
func (w *writers) settledWithout(old time.Time) int64 {
	settled := w.last
	for _, o := range w.open {
		if !o.before && o.since.After(old) {
			settled = min(settled, o.above)
		}
	}
	return settled
}

// obstacle is the writer that keeps numbers from being settled; of several with
// the same effect the one that was seen first. It reports false without any.
func (w *writers) obstacle() (obstacle writer, found bool) {
	for _, o := range w.open {
		if !found || o.worse(obstacle) {
			obstacle, found = o, true
		}
	}
	return obstacle, found
}

func (w writer) worse(than writer) bool {
	return cmp.Or(cmp.Compare(w.above, than.above), w.since.Compare(than.since), cmp.Compare(w.transaction, than.transaction)) < 0
}
