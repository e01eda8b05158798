package relay

import (
	"context"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/vital"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// Condition is the state of a [Source] at one moment.
type Condition = vital.Condition

// Source hands over committed messages in commit order, in sessions: Open takes
// the stream, Next reads it until it ends, Close gives it back. While a session
// is open nobody else reads the same stream.
//
// The messages of a session are numbered from 0 in the order in which Next
// returns them. Resolve takes these numbers.
type Source interface {
	// BeforeTake sets what Open calls once it knows the server, and before it
	// makes or takes anything there: with the system identifier, and the timeline
	// that a promotion raises. After an error it does neither and asks again: within
	// seconds and for as long as it takes if the error has a Hint() string,
	// because then it waits for a person. It is called before the first Open.
	BeforeTake(allow func(ctx context.Context, system string, timeline int32) error)

	// BeforeCreate sets what Open asks and tells before it makes a slot: whether
	// the slot served before, so that its absence is a loss, and then that a new
	// one comes; it is not made if that returns an error. It is called before the
	// first Open.
	BeforeCreate(served func(context.Context) (bool, error), announce func(context.Context) error)

	// Open takes the stream. It waits while another relay holds it and while
	// the server cannot be reached, with backoff. It returns nil once messages
	// can be read, the context's error when that ends first, or an error that
	// no retry can cure.
	Open(ctx context.Context) error

	// Created reports whether the last Open made the slot: then the stream shows
	// nothing that was committed before.
	Created() bool

	// StartPosition is the confirmed flush of the stream when Open took it, as
	// Postgres writes a pg_lsn.
	StartPosition() string

	// Next returns the next messages, at least one; the slice is the caller's.
	// The first messages may have been handled in an earlier session.
	// An error ends the session: the stream may belong to somebody else by now.
	// When ctx ends first, Next returns its error and the session goes on.
	// Only one goroutine may call Next.
	Next(ctx context.Context) ([]outbox.Row, error)

	// Resolve tells that the outcomes of these messages are durable in
	// Postgres, each number once. It never blocks for long and is safe for
	// concurrent use; after the session's end it does nothing.
	Resolve(numbers []uint64)

	// Position is the confirmed flush of the session as Postgres writes a
	// pg_lsn; after Close it is the last one that was reported. It is safe for
	// concurrent use.
	Position() string

	// LastWord is the last moment at which the session provably held the
	// stream. It stays fresh while nobody calls Next. It is safe for concurrent
	// use.
	LastWord() time.Time

	// Condition is what the source is doing, for people and for health checks. It
	// costs nothing, waits for nothing and is safe for concurrent use.
	Condition() Condition

	// Close ends the session: it reports the last position and waits for the
	// server to let the stream go, at most until ctx ends. It does nothing
	// without an open session. A later Open starts the next session.
	Close(ctx context.Context) error
}
