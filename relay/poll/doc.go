// Package poll reads messages from the table instead of the WAL, for servers
// that offer no logical replication. It needs no slot, no publication and no
// role that may replicate.
//
// A [Source] looks for messages without outcome, over and over:
//
//	the last number given out, then who holds the lock of a writer
//	        │
//	        ▼
//	up to here every number is settled ──► messages without outcome, in id order
//	above it                           ──► those without an ordering key
//
// # What goes out when
//
// Numbers are given out when a row is inserted and rows appear when their
// transaction commits, in another order. A number is settled once no open
// transaction can commit it any more. An INSERT takes its lock on the table
// before its number and keeps it until its row can be seen; so a transaction
// that does not have the lock when a number is read gets higher ones only (see
// [writers]).
//
// A message with an ordering key goes out when every number up to its own is
// settled: the order of an ordering key is that of the ids. One without an
// ordering key goes out as soon as it can be seen.
//
// A transaction that has written messages and stays open therefore holds back
// ordered messages of everybody: whether it holds a lower number of the same
// ordering key cannot be known. The log names it.
//
// # What is remembered
//
// Nothing that could be lost. A session looks through the whole table once, by
// primary keys, and from then on only at what is new. A message that was handed
// over and has no outcome when the session ends is found by the next one.
//
// # One relay at a time
//
// A session-level advisory lock stands where the slot is otherwise: its key is
// hashtextextended(slot, 0), in the outbox's database. It is held by the
// connection that also reads the messages, so that what is read proves that the
// lock was held. The server ends that session, and with it the lock, when it
// hears nothing for Config.LeaseTimeout: a relay that is frozen, or whose host is
// gone, loses it like a slot. One that dies loses it at once.
//
// The lock means nothing through a connection pooler, which gives the backend
// to others; a Source refuses to work through one.
package poll
