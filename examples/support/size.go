package main

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
	"github.com/outbox-relay/outbox-relay/examples/support/app"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// tooLarge is an answer whose text somebody puts into the message itself.
func (r *rig) tooLarge() {
	const id = "manual"
	text := strings.Repeat("Chapter 1. ", 50_000)
	r.Scene("an answer of %d bytes, first in the message, then by reference", len(text))
	payload := map[string]string{"event_id": "reply-" + id, "text": text}

	// The reply is written first, so that there is something to be lost with it.
	write := func(enqueue func(tx pgx.Tx) error) error {
		return pgx.BeginFunc(r.Context(), r.DB, func(tx pgx.Tx) error {
			if _, err := tx.Exec(r.Context(), `insert into replies (id, target) values ($1, '')`, id); err != nil {
				return err
			}
			return enqueue(tx)
		})
	}
	err := write(func(tx pgx.Tx) error {
		_, err := outbox.Enqueue(r.Context(), tx, outbox.Message{Key: "reply-" + id, Queue: app.Replies, Payload: payload})
		return err
	})
	limit, ok := errors.AsType[*outbox.LimitError](err)
	if !ok {
		r.Fatalf("Go: %v, want a limit", err)
	}
	err = write(func(tx pgx.Tx) error {
		_, err := tx.Exec(r.Context(), `select outbox.enqueue(key => $1, queue => $2, payload => $3)`, "reply-"+id, app.Replies, payload)
		return err
	})
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		r.Fatalf("SQL: %v, want an error of the server", err)
	}
	r.Say("Go:  %s", limit)
	r.Say("SQL: %s (SQLSTATE %s), constraint %s", refused.Message, refused.Code, refused.ConstraintName)
	r.Prove("an instruction that is too large is refused where it is written, and takes the reply with it",
		drill.Is("field", limit.Field, "payload"), drill.Is("constraint", refused.ConstraintName, "messages_payload_size"),
		drill.Is("replies", r.count(`select count(*) from replies where id = $1`, id), 0),
		drill.Is("messages", r.count(`select count(*) from outbox.messages where key = $1`, "reply-"+id), 0))

	r.answer(id, text)
	r.awaitInQueue(id)
	r.Pass(app.Grace)
	r.awaitSent(id)
	r.Prove("by reference it arrives", drill.Is("text is the agent's", r.target.seen(id).text == text, true))
}

// whole looks at everything that has happened.
func (r *rig) whole() {
	r.Scene("in the end")
	r.AwaitCount(0, `select count(*) from outbox.message_status where state <> 'dispatched'`) // the last mark may be on its way
	states := func(state string) int { return r.count(`select count(*) from replies where state = $1`, state) }
	r.Prove("every answer has exactly one end, and no message is left behind",
		drill.Is("sent", states("sent"), r.sent), drill.Is("replies at the target", r.target.total(), r.sent),
		drill.Is("withdrawn", states("withdrawn"), 2), drill.Is("failed", states("failed"), 1), drill.Is("open", states("open"), 0),
		drill.Is("messages not dispatched", r.count(`select count(*) from outbox.message_status where state <> 'dispatched'`), 0))
}
