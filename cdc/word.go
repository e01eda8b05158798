package cdc

import (
	"sync/atomic"
	"time"
)

// word is the newest moment at which the session held the slot beyond doubt.
//
// A message that is read now proves little: it may have waited in a buffer for
// minutes, because this process was frozen or because nobody took messages
// from the stream. What counts is when the server sent it. The server's clock
// is translated by the pair of clocks of the last question that was put to the
// server, with our clock read before the question: too early at most, never
// too late.
type word struct {
	latest atomic.Pointer[time.Time]
	clocks atomic.Pointer[clocks]
}

type clocks struct{ ours, theirs time.Time }

// held notes that the session held the slot at that moment.
func (w *word) held(at time.Time) {
	for {
		last := w.latest.Load()
		if last != nil && !at.After(*last) {
			return
		}
		if w.latest.CompareAndSwap(last, &at) {
			return
		}
	}
}

// compare notes what the server's clock showed at our time or a little later.
func (w *word) compare(ours, theirs time.Time) {
	w.clocks.Store(&clocks{ours, theirs})
}

// heard notes that the server wrote something to the stream at sent, by its own
// clock. It cannot have been later than now, whatever became of that clock.
func (w *word) heard(sent, now time.Time) {
	c := w.clocks.Load()
	if c == nil {
		return
	}
	at := c.ours.Add(sent.Sub(c.theirs))
	if at.After(now) {
		at = now
	}
	w.held(at)
}

// last is the moment; zero before the first.
func (w *word) last() time.Time {
	if at := w.latest.Load(); at != nil {
		return *at
	}
	return time.Time{}
}
