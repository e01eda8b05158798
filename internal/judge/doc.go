// Package judge lets everything go wrong at once and proves from the outside
// that the promises hold: writers that log what they committed, a queue with a
// journal and scripted faults, two relays that are killed, stopped and frozen, a
// server that crashes and loses its slot, three networks that freeze, cut and
// delay, and operators who pause queues and redrive dead letters.
//
//	report, err := judge.Run(ctx, cluster, database, judge.Config{Duration: time.Minute, Seed: 7, ...})
//
// It knows nothing of the relay but its settings, its exit code, its log and its
// tables.
//
// # What it judges
//
// Of every message: committed is accepted, rolled back is never seen; the same
// key and bytes on every request, and the bytes say what was written; first
// acceptances in commit order per ordering key; nothing before its deliver_at;
// nothing after it was withdrawn; a sick message becomes a dead letter, and
// arrives under its key when it is redriven; each acceptance is marked, each mark
// was accepted, and each repeat has a cause that lies before the mark.
//
// Of time: an answer is marked within seconds while Postgres is well; the slot
// follows the end of the WAL while Postgres is well, whatever the queue does; a
// queue that is well accepts at once, whatever the others do. The type history
// knows what was disturbed when, and no bound holds while something that it needs
// was. Two kinds of quiet times see to it that enough is left to judge: a lull,
// in which one queue is dead and all else is well, and a truce, in which
// everything is well.
//
// Of a relay: its memory and its descriptors do not grow, and its log has no
// error that nobody caused.
//
// # The seed
//
// It decides what every writer writes, what goes wrong, in which order and for
// how long, and what the operators do. Who wins a race it does not. Each thing
// that is decided has dice of its own, so that the outcome of one changes nothing
// about the next.
//
// What it reads from the journal it keeps as a few bytes a message, so that a
// run may take hours. The history of a message whose promise was broken is told
// at once: its commit, its requests, its rows, and what went wrong around them.
package judge
