// Package verify proves that every committed message has exactly one outcome or
// is on its way to one.
//
// It goes through the numbers of messages in batches. A batch is one snapshot, a
// range of the primary keys of messages and of the four outcomes, and a few
// thousand rows: it locks nothing that anybody waits for, and holds no snapshot
// for long. In a snapshot the outcome of a message is all there or not at all,
// because the relay writes it in one transaction.
//
// What a message may have is this, and nothing else:
//
//	message  dispatched  dead letter  deferred          withdrawn
//	yes      -           -            -                 -          on its way, or unaccounted
//	any      yes         -            -                 -          dispatched
//	any      -           -            yes               -          deferred; without message it will be withdrawn
//	any      -           yes          -                 -          dead letter
//	any      -           yes          with dead_letter  -          dead letter that holds its lane
//	no       -           -            -                 yes        withdrawn
//	no       -           yes          -                 yes        dead letter that held its lane until its message was deleted
//
// The application may delete its messages, and retention removes messages with
// their outcomes, so an outcome without message is no fault.
//
// A message without outcome is on its way while it is young, and while the slot
// has not confirmed the position at which it was looked for: the stream may show
// it yet. So what looks like a fault is looked at once more, after the confirmed
// flush has passed the end of the WAL as it was after the first look. What has no
// outcome then, the stream does not show any more. A relay that polls has no
// position: there the second look is repeated for as long as some of the messages
// get outcomes between two looks.
package verify
