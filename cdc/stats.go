package cdc

import "sync/atomic"

// Stats counts what a [Source] has seen since it was made.
type Stats struct {
	// Sessions is how often the stream was taken.
	Sessions uint64
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
}

func (c *counters) read() Stats {
	return Stats{
		Sessions:     c.sessions.Load(),
		Transactions: c.transactions.Load(),
		Messages:     c.messages.Load(),
		Bytes:        c.bytes.Load(),
		Ignored:      c.ignored.Load(),
		Notices:      c.notices.Load(),
		Statuses:     c.statuses.Load(),
	}
}
