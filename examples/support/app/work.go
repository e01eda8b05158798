package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

// Name is that of the consumer, in its claims.
const Name = "support-desk"

// Work carries out instructions until ctx ends.
//
// Each one at work holds a connection for the transaction with its claim, and
// needs another one to count its attempt. With fewer than two for each, all could
// hold their first one and wait for a second for ever.
func (d *Desk) Work(ctx context.Context) error {
	config := d.Loop
	config.Concurrency = int(d.DB.Config().MaxConns / 2)
	if config.Concurrency == 0 {
		return errors.New("the desk needs a pool of two connections or more")
	}
	c := &consumer.Consumer{Name: Name, DB: d.DB, Handler: d.handle}
	loop, err := consumer.NewLoop(c, d.Queue, consumer.Plain(consumer.Field("event_id")), config)
	if err != nil {
		return err
	}
	return loop.Run(ctx)
}

// handle carries out one instruction, in the transaction that has claimed it. An
// error rolls that back: the claim is free again, and the instruction comes again.
func (d *Desk) handle(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
	var in instruction
	if err := json.Unmarshal(m.Data, &in); err != nil {
		return consumer.Permanent(err)
	}
	text, err := fetch(ctx, tx, in.Text)
	if errors.Is(err, errNothingToDo) {
		return nil
	}
	if err != nil {
		return err
	}
	attempt, number, err := d.begin(ctx, in.Text.Reply)
	if err != nil {
		return err
	}
	answer, err := post(ctx, in.Target, in.EventID, number, text)
	if err != nil {
		return consumer.RetryAfter(fmt.Errorf("attempt %d: %w", number, err), patience(number))
	}
	d.note(ctx, attempt, answer)
	switch {
	case answer.sent():
		_, err := end(ctx, tx, in.Text.Reply, "sent")
		return err
	case answer.mayPass():
		return consumer.RetryAfter(fmt.Errorf("attempt %d: %w", number, answer), max(answer.retryAfter, patience(number)))
	default:
		return failed(ctx, tx, in, answer.status)
	}
}

// errNothingToDo is a reply that was withdrawn, or has its end already: the claim
// has expired since, and somebody replays old messages.
var errNothingToDo = errors.New("nothing to do")

// fetch reads a text by its reference and locks its row, so that an agent who
// withdraws the reply now waits, and then learns which it was. A stronger lock
// would also stop the attempt that begin writes: it refers to this row, over
// another connection, and both would wait for ever.
func fetch(ctx context.Context, tx pgx.Tx, ref reference) (text string, err error) {
	var body *string
	var over bool
	err = tx.QueryRow(ctx, `
		select body, state <> 'open' from replies where id = $1 for no key update`, ref.Reply).Scan(&body, &over)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		// Not Permanent: a message can be a little faster than the commit that
		// wrote it is visible.
		return "", fmt.Errorf("there is no reply %q", ref.Reply)
	case err != nil:
		return "", err
	case over:
		return "", errNothingToDo
	case body == nil || digest(*body) != ref.SHA256:
		return "", consumer.Permanent(fmt.Errorf("the text of reply %q is not the one that was to be sent", ref.Reply))
	}
	return *body, nil
}

// begin counts an attempt, over a connection of its own: it stays counted
// whatever becomes of the transaction, the request and this process.
func (d *Desk) begin(ctx context.Context, reply string) (attempt int64, number int, err error) {
	err = d.DB.QueryRow(ctx, `
		with this as (insert into attempts (reply_id) values ($1) returning id)
		select id, 1 + (select count(*) from attempts where reply_id = $1) from this`, reply).Scan(&attempt, &number)
	return attempt, number, err
}

// note writes down what was answered, for whoever looks at it later. If that does
// not work the answer counts all the same: it is no reason to ask again.
func (d *Desk) note(ctx context.Context, attempt int64, a *answer) {
	_, _ = d.DB.Exec(ctx, `update attempts set answer = $2 where id = $1`, attempt, a.status)
}

// failed ends a reply that the target will never take. The agents get a message
// in the same transaction.
func failed(ctx context.Context, tx pgx.Tx, in instruction, status int) error {
	if _, err := end(ctx, tx, in.Text.Reply, "failed"); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `insert into failed_replies (reply_id, status) values ($1, $2)`, in.Text.Reply, status); err != nil {
		return err
	}
	key := in.EventID + "-failed"
	_, err := outbox.Enqueue(ctx, tx, outbox.Message{Key: key, Queue: Failures, Payload: map[string]any{
		"event_id": key, "reply": in.Text.Reply, "status": status,
	}})
	return err
}

// patience is how long to wait after an attempt that failed: half a minute, and
// twice as long after each further one, up to an hour.
func patience(attempt int) time.Duration {
	return min(30*time.Second<<min(attempt-1, 10), time.Hour)
}
