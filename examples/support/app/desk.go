package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

// The queues. Failures takes messages for the agents.
const (
	Replies  = "replies"
	Failures = "failed-replies"
)

// Grace is how long an agent may think again.
const Grace = 300 * time.Second

// Tables is the SQL of the desk.
const Tables = `
create table if not exists replies (
	id text primary key,
	target text not null,
	body text,               -- null once it is of no use any more
	state text not null default 'open' check (state in ('open', 'sent', 'failed', 'withdrawn')),
	ended_at timestamptz     -- since when it is not open any more
);
create table if not exists attempts (
	id bigint generated always as identity primary key,
	reply_id text not null references replies,
	began_at timestamptz not null default now(),
	answer integer           -- null: there was none, or it was not noted
);
create table if not exists failed_replies (
	reply_id text primary key references replies,
	status integer not null
);
`

// ErrTooLate says that a reply was not open any more when it was to be withdrawn.
var ErrTooLate = errors.New("too late to withdraw")

// Desk is the support desk. Its methods are safe for concurrent use.
type Desk struct {
	// DB needs two connections for each instruction at work, see [Desk.Work].
	DB *pgxpool.Pool
	// Queue is [Replies].
	Queue consumer.Queue
	// Loop says how the queue is consumed; Concurrency follows from DB.
	Loop consumer.LoopConfig
}

// Reply is what an agent writes.
type Reply struct {
	// ID comes from the form that the agent sends: sent twice, it is one reply.
	ID string
	// Target is where the reply is posted to.
	Target string
	Text   string
	// At is when it is sent; zero is after [Grace].
	At time.Time
}

// instruction is the message. The number of the attempt is not in it: a message
// keeps its bytes over all deliveries. It is counted in the table attempts, and
// goes to the target as a header.
type instruction struct {
	// EventID is what Work claims, and the Idempotency-Key of every request.
	EventID string    `json:"event_id"`
	Target  string    `json:"target"`
	Text    reference `json:"text"`
}

// reference is where a text is, and how to recognise it.
type reference struct {
	Reply  string `json:"reply"`
	SHA256 string `json:"sha256"`
}

func key(reply string) string { return "reply-" + reply }

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Answer writes a reply and the instruction to send it: both, or neither. A reply
// that was written before is left as it is, with [outbox.ErrDuplicateKey].
func (d *Desk) Answer(ctx context.Context, r Reply) error {
	message := outbox.Message{Key: key(r.ID), Queue: Replies, Payload: instruction{
		EventID: key(r.ID), Target: r.Target, Text: reference{r.ID, digest(r.Text)},
	}}
	if r.At.IsZero() {
		message.Delay = Grace // the queue waits
	} else {
		message.DeliverAt = r.At // the outbox waits: a queue keeps nothing for thirty days
	}
	return pgx.BeginFunc(ctx, d.DB, func(tx pgx.Tx) error {
		if _, err := outbox.Enqueue(ctx, tx, message); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `insert into replies (id, target, body) values ($1, $2, $3)`, r.ID, r.Target, r.Text)
		return err
	})
}

// Withdraw takes a reply back that was not sent yet. The message is deleted,
// which stops it as long as it waits in the outbox. One that is in the queue
// already arrives, and finds that there is nothing to do.
func (d *Desk) Withdraw(ctx context.Context, reply string) error {
	return pgx.BeginFunc(ctx, d.DB, func(tx pgx.Tx) error {
		// Waits for a request that is under way, and then looks at what became of
		// the row, but of no other one: so the row says all.
		open, err := end(ctx, tx, reply, "withdrawn")
		if err != nil {
			return err
		}
		if !open {
			return ErrTooLate
		}
		_, err = tx.Exec(ctx, `delete from outbox.messages where key = $1`, key(reply))
		return err
	})
}

// end ends a reply, and reports whether it was open until then.
func end(ctx context.Context, tx pgx.Tx, reply, state string) (open bool, err error) {
	tag, err := tx.Exec(ctx, `update replies set state = $2, ended_at = now() where id = $1 and state = 'open'`, reply, state)
	return tag.RowsAffected() == 1, err
}

// Tidy removes texts that were sent or withdrawn some time ago. It looks at what
// became of a reply, not at its age: an instruction may wait for thirty days, be
// tried for hours, and lie among the dead letters until somebody sees it, and its
// text has to be there all the time. That of a failed reply stays for the agent.
func (d *Desk) Tidy(ctx context.Context, keep time.Duration) (removed int64, err error) {
	tag, err := d.DB.Exec(ctx, `
		update replies set body = null
		where body is not null and state in ('sent', 'withdrawn') and ended_at <= now() - make_interval(secs => $1)`, keep.Seconds())
	return tag.RowsAffected(), err
}
