package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/paused"
)

// Pause says why a queue is to be paused. The server notes when, and by whom.
type Pause struct {
	// Reason is one line of at most 200 characters, for whoever looks later; empty
	// means none.
	Reason string
	// Through is by which way it came, where that is more than the role says.
	Through string
}

// The row is locked, so that what was is what the change ends.
var sqlPause = `select ` + paused.Columns("q") + ` from outbox.queues q where queue = $1::text and paused for update`

// A pause that lasts keeps its beginning. Who gives another reason for it takes it
// over.
const sqlSetPause = `
insert into outbox.queues as q (queue, paused, paused_by, paused_reason)
values ($1::text, true, case when $3::text <> '' then session_user || ', ' || $3::text end, nullif($2::text, ''))
on conflict (queue) do update
	set paused = true, paused_by = excluded.paused_by, paused_reason = excluded.paused_reason
	where not q.paused or excluded.paused_reason is not null`

const sqlEndPause = `update outbox.queues set paused = false where queue = $1::text`

// PauseQueue stops a queue. It returns the pause that it found, nil if the queue was
// not paused: one that lasts goes on, with a new reason if one is given.
func (o *Operator) PauseQueue(ctx context.Context, queue string, why Pause) (was *paused.Note, err error) {
	err = o.changePause(ctx, queue, func(tx pgx.Tx, found *paused.Note) error {
		was = found
		_, err := tx.Exec(ctx, o.in(sqlSetPause), queue, why.Reason, why.Through)
		return err
	})
	if err != nil {
		return nil, refused(fmt.Errorf("pause queue %q: %w", queue, err))
	}
	return was, nil
}

// ResumeQueue lets a queue go on. It returns the pause that it ended, nil if there was
// none.
func (o *Operator) ResumeQueue(ctx context.Context, queue string) (was *paused.Note, err error) {
	err = o.changePause(ctx, queue, func(tx pgx.Tx, found *paused.Note) error {
		was = found
		if found == nil {
			return nil
		}
		_, err := tx.Exec(ctx, o.in(sqlEndPause), queue)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("resume queue %q: %w", queue, err)
	}
	return was, nil
}

// changePause runs do with the pause of a queue, nil if it is not paused.
func (o *Operator) changePause(ctx context.Context, queue string, do func(pgx.Tx, *paused.Note) error) error {
	return pgx.BeginFunc(ctx, o.conn, func(tx pgx.Tx) error {
		var found paused.Note
		err := tx.QueryRow(ctx, o.in(sqlPause), queue).Scan(found.Fields()...)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return do(tx, nil)
		case err != nil:
			return err
		}
		return do(tx, &found)
	})
}
