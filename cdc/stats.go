package cdc

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Stats counts what a [Source] has seen since it was made.
type Stats struct {
	// Sessions is how often the stream was taken.
	Sessions uint64
	// Ends is how sessions ended, by one of [Ends].
	Ends map[string]uint64
	// Losses is how often the slot was lost or gone, by one of [Losses].
	Losses map[string]uint64
	// Transactions is how many commits were read; on servers before 15 also
	// those without a message.
	Transactions uint64
	// Messages and Bytes are what was handed over, and its text.
	Messages, Bytes uint64
	// Ignored counts updates, deletes, truncates and the like, which a
	// publication of inserts alone does not have.
	Ignored uint64
	// Notices is how many notices the server put into the stream.
	Notices uint64
	// Statuses is how many standby statuses were sent.
	Statuses uint64
}

type counters struct {
	sessions, transactions, messages, bytes, ignored, notices, statuses atomic.Uint64

	ends, losses tally
}

func (c *counters) read() Stats {
	return Stats{
		Sessions:     c.sessions.Load(),
		Ends:         c.ends.read(),
		Losses:       c.losses.read(),
		Transactions: c.transactions.Load(),
		Messages:     c.messages.Load(),
		Bytes:        c.bytes.Load(),
		Ignored:      c.ignored.Load(),
		Notices:      c.notices.Load(),
		Statuses:     c.statuses.Load(),
	}
}

// tally counts what happens seldom, by a name.
type tally struct {
	mu sync.Mutex
	by map[string]uint64
}

func (t *tally) add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = make(map[string]uint64)
	}
	t.by[name]++
}

func (t *tally) read() map[string]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.by)
}
