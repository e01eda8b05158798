package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// Redrive puts dead letters back, to be sent with the same key: each row of
// dead_letters becomes one of deferred that is due at once. The attempts go on
// counting, those that were held against the message start over.
//
// It works through ids in their order, in batches of 100, each a transaction,
// with a pause in between; after each batch it tells how many are done. A dead
// letter that somebody else took meanwhile, or whose message was deleted, is
// left out. After an error the batches before it stay done.
func (o *Operator) Redrive(ctx context.Context, ids []int64, tell func(done int)) (done int, err error) {
	ids = slices.Sorted(slices.Values(ids))
	for batch := range slices.Chunk(ids, redriveBatch) {
		if done > 0 && !waits.Sleep(ctx, o.Pause) {
			return done, fmt.Errorf("redrive: %w", context.Cause(ctx))
		}
		var n int
		err := pgx.BeginFunc(ctx, o.conn, func(tx pgx.Tx) (err error) {
			n, err = o.redriveBatch(ctx, tx, batch)
			return err
		})
		if err != nil {
			return done, fmt.Errorf("redrive: %w", err)
		}
		done += n
		tell(done)
	}
	return done, nil
}

// One redrive at a time: two could choose the same place in a lane.
const sqlLockRedrive = `select pg_advisory_xact_lock(hashtextextended($1::text, 0))`

func (o *Operator) redriveBatch(ctx context.Context, tx pgx.Tx, ids []int64) (done int, err error) {
	if _, err := tx.Exec(ctx, sqlLockRedrive, "outbox redrive "+o.schema); err != nil {
		return 0, err
	}
	for _, id := range ids {
		moved, err := o.redriveOne(ctx, tx, id)
		if err != nil {
			return 0, fmt.Errorf("message %d: %w", id, err)
		}
		if moved {
			done++
		}
	}
	return done, nil
}

// What is known of the last failure stays with the message until the next one. A
// dead letter that holds its lane has a row there already, in its place.
const sqlRedrive = `
with x as (
	delete from outbox.dead_letters x using outbox.message_status m
	where x.message_id = $1::bigint and m.message_id = x.message_id
	returning x.message_id, m.queue, m.ordering_key, x.attempts, x.last_status, x.last_error, x.unknown_since
), there as (
	select d.message_id from outbox.deferred d join x using (message_id)
)
insert into outbox.deferred (message_id, queue, ordering_key, reason, attempts, charged, not_before, last_status, last_error, unknown_since)
select message_id, queue, ordering_key, 'redriven', attempts, 0, now(), last_status, last_error, unknown_since from x
on conflict (message_id) do update set reason = excluded.reason, charged = 0, not_before = excluded.not_before
returning queue, coalesce(ordering_key, ''), exists (select from there),
	coalesce((select q.ordering = 'queue' from outbox.queues q where q.queue = deferred.queue), false)`

const sqlMove = `update outbox.deferred set position = $2::bigint where message_id = $1::bigint`

// redriveOne reports whether there was something to redrive.
func (o *Operator) redriveOne(ctx context.Context, tx pgx.Tx, id int64) (bool, error) {
	var lane lane
	var placed bool
	err := tx.QueryRow(ctx, o.in(sqlRedrive), id).Scan(&lane.queue, &lane.orderingKey, &placed, &lane.whole)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil || placed || lane.orderingKey == "" && !lane.whole:
		return err == nil, err
	}
	position, err := o.placeOf(ctx, tx, id, lane)
	if err != nil {
		return false, err
	}
	_, err = tx.Exec(ctx, o.in(sqlMove), id, position)
	return err == nil, err
}
