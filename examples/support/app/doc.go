// Package app is a support desk. Agents answer tickets; five minutes later, or
// on the day that was promised, the answer is posted to the system that the
// ticket came from. Each answer arrives there once.
//
//	agent ── one transaction ──► replies, message ── relay ──► queue "replies"
//	                                ▲                             │
//	                                └── text, by reference ── [Desk.Work] ── POST, key ──► target
//
//	d := &app.Desk{DB: pool, Queue: consumer.Queue{BaseURL: url, Name: app.Replies, APIKey: key}}
//	err := d.Work(ctx) // in the worker
//	err := d.Answer(ctx, app.Reply{ID: form, Target: hook, Text: text}) // where agents are
//
// # What is inside a transaction, and what is not
//
// The message is an instruction: where to post, which text, under which key. The
// text stays in the table, so the message is small and always the same.
//
//   - Written with the reply ([Desk.Answer]): the instruction. No reply without
//     it, and none for a reply that was rolled back.
//   - In the transaction that claims the instruction: that the reply was sent, or
//     failed for good, and the message that tells of a failure. It commits or rolls
//     back with the claim, so each reply ends in one way, once.
//   - Outside, committed by itself before the request: that there is an attempt.
//     What fails rolls back with its claim; the count of attempts must not.
//   - Outside of everything: the request. No rollback takes it back. It may have
//     had its effect although no answer came, or although our commit fails
//     afterwards. So it goes out again, and what makes it one reply is its key: the
//     same in every attempt, and known to the target. A target that knows no keys
//     gets such a reply twice; no outbox can change that.
//
// # When it does not work
//
//	the target answers            the transaction   the instruction
//	2xx                           commits: sent     is done
//	429, 5xx, 408, 425            rolls back        comes again, ever later, not before Retry-After
//	not at all                    rolls back        comes again, ever later
//	anything else                 commits: failed   is done
//
// What comes again too often is taken by the dead letter queue, with nothing
// lost: once the target is mended it is redriven, and is the same instruction with
// the same key. A refusal for good does not take that way: it would be tried
// max_retries times more, and to ask again is of no use. It is recorded, and the
// agent gets a message.
package app
