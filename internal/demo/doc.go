// Package demo plays the main job of this program on real things: a throwaway
// Postgres, the queue's emulator and the relay as processes of their own, and a
// small shop between them.
//
//	tills ──── one transaction ────► Postgres ── WAL ──► relay ── HTTP ──► queue
//	           orders and messages      ▲                                    │
//	                                    └──── claim and effect ◄── consumer ─┘
//
// Some sales roll back and some are written twice. The queue loses answers
// after it has accepted the message and says 429 now and then; the relay is
// killed with -9 twice; the consumer forgets to acknowledge. In the end there is
// an account: what the tills know, what the queue's journal says, what the
// consumer did and what the tables hold must agree, or [Run] returns an error
// that names the line that does not hold.
//
// Nothing outlives Run, whether it ends well, by an error or by a signal: the
// processes end, and the folder goes. After an error the logs stay.
package demo
