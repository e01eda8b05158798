// Package relay moves messages from a [Source] to a [Publisher] and records
// what became of each of them.
//
// # What it promises
//
// A message is published first and marked afterwards, always with the same key
// and the same bytes. Messages with the same queue and ordering key are
// accepted in commit order, whatever fails in between. The source learns that a
// message is resolved only when its outcome is durable in Postgres.
//
// # How it moves
//
//	Source --> intake --> router --> workers --> Publisher
//	                      |  ^  ^       |
//	                      |  |  +- room |
//	                      |  |          v
//	                      |  +------- writer --> Postgres: dispatched, deferred, dead_letters
//	                      |             |
//	                      +-- loader <--+------> Source.Resolve --> confirmed flush
//
// The intake reads batches from the source while the window has room. The
// router, a data structure under one lock, puts each message into its lane; a
// lane is the sequence of messages of one queue and ordering key, and at most
// one of them is in flight. A message without ordering key is a lane of its own.
// Workers come to the router for the next message, publish it, and bring it back
// with what happened. The writer collects outcomes and writes many of them in
// one transaction of one round trip, together with the confirmed flush, if the
// epoch is still ours. Only after its commit do the source and the window
// learn of it.
//
// # When something fails
//
// What happens next is decided by the [Class] of a failure. A message that may
// succeed later waits in its lane for a moment, with a backoff; others of the
// lane wait behind it, and no other lane does. Then it goes into the table
// deferred, and what is behind it follows: the lane is held. A row of failures
// closes a gate before the endpoint, a 404 one before its queue; behind a closed
// gate one request at a time goes out as a probe, and the queue is held as a
// whole. A queue that is slower than its messages come is held too. So the slot
// never waits for long, whatever the queue does.
//
// While a lane or a queue is held, later messages of it go into the table behind
// the others. The loader brings them back in order, in chunks, as a cache: a
// deferred row is deleted in the transaction that records its outcome, so that
// what is in memory can be dropped at any time. The type hold tells how a lane
// becomes live again without a gap.
//
// A message that the queue will never take becomes a dead letter, and its lane
// goes on. So does one whose request the process does not survive: after starts
// that followed a death, messages go out one at a time and on record, until the
// culprit is known or nothing happens.
//
// When the stream breaks, the session ends: requests in flight are cancelled,
// everything in memory is dropped, and the stream is taken again, since another
// relay may have had it in between. The slot shows again what was not confirmed.
// The replay guard takes out of that what has an outcome in Postgres. What the
// queue accepted, but nobody could write down, is remembered in memory and
// marked without a second request.
//
// When only the writing fails, intake stops, and outcomes wait in memory until
// it works again.
//
// What the stream did not show, because somebody moved the slot or changed the
// publication, the sweep finds in the table.
//
// # Stopping
//
// Intake ends; requests in flight finish, for as long as the drain timeout;
// their outcomes are written; the source reports its last position and lets the
// slot go. In that order, in [session.run].
//
// # What it does not do
//
// It does not know what an LSN is, nor HTTP. It never reads the table messages
// on the way from the stream to the queue: a row that the stream shows may not
// be visible to a query yet. Only deferred messages are read back, and there the
// transaction of a row that is missing tells whether it was deleted or is not
// visible yet.
package relay
