package relay

import (
	"sync/atomic"
	"time"
)

// totals counts what became durable since the process started. The zero totals
// has counted nothing. It is safe for concurrent use.
type totals struct {
	dispatched, deferred, dead, withdrawn, recovered atomic.Uint64

	outcomeAt, deadAt, recoveredAt atomic.Int64 // the last one, in nanoseconds
}

// count counts a batch of outcomes.
func (t *totals) count(now time.Time, batch []*outcome) {
	var n [released + 1]uint64
	for _, o := range batch {
		n[o.state]++
	}
	t.dispatched.Add(n[dispatched])
	t.deferred.Add(n[deferred])
	t.withdrawn.Add(n[withdrawn])
	t.outcomeAt.Store(now.UnixNano())
	if n[dead] > 0 {
		t.dead.Add(n[dead])
		t.deadAt.Store(now.UnixNano())
	}
}

// recover counts messages that the stream did not show.
func (t *totals) recover(now time.Time, n int64) {
	if n > 0 {
		t.recovered.Add(uint64(n))
		t.recoveredAt.Store(now.UnixNano())
	}
}

// state is what was counted so far.
func (t *totals) state() Totals {
	return Totals{
		Dispatched: t.dispatched.Load(), Deferred: t.deferred.Load(), DeadLetters: t.dead.Load(),
		Withdrawn: t.withdrawn.Load(), Recovered: t.recovered.Load(),
		LastOutcome: nanoseconds(t.outcomeAt.Load()), LastDeadLetter: nanoseconds(t.deadAt.Load()),
		LastRecovered: nanoseconds(t.recoveredAt.Load()),
	}
}

// nanoseconds is a moment that is kept as nanoseconds; nil for 0.
func nanoseconds(unix int64) *time.Time {
	if unix == 0 {
		return nil
	}
	at := time.Unix(0, unix)
	return &at
}
