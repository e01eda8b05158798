package verify

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/status"
)

// Reads both ends of five primary keys.
const sqlBounds = `
select clock_timestamp(), coalesce(min(first), 0), coalesce(max(last), 0) from (
	select min(message_id), max(message_id) from outbox.message_status union all
	select min(message_id), max(message_id) from outbox.dispatched union all
	select min(message_id), max(message_id) from outbox.dead_letters union all
	select min(message_id), max(message_id) from outbox.deferred union all
	select min(message_id), max(message_id) from outbox.withdrawn
) as bounds (first, last)`

// bounds finds the range of numbers to look at, and who moves messages.
func (v *verifier) bounds(ctx context.Context) error {
	r := v.report
	return v.snapshot(ctx, func(tx pgx.Tx) (err error) {
		if err = tx.QueryRow(ctx, v.in(sqlBounds)).Scan(&r.At, &r.From, &r.To); err != nil {
			return err
		}
		if v.mover, err = status.ReadMover(ctx, tx, v.cfg.Schema, v.cfg.Slot); err != nil {
			return err
		}
		if v.cfg.Since > 0 {
			if r.From, err = v.firstSince(ctx, tx, r.At.Add(-v.cfg.Since-sinceMargin)); err != nil {
				return err
			}
		}
		r.From = max(r.From, v.cfg.From)
		if v.cfg.To > 0 {
			r.To = min(r.To, v.cfg.To)
		}
		r.To = max(r.To, r.From-1)
		return nil
	})
}

// sinceMargin is how much farther back Config.Since looks: numbers follow the time
// of the insert, and created_at is the beginning of the transaction.
const sinceMargin = 10 * time.Minute

// Reads one entry of the primary key of messages.
const sqlNext = `
select message_id, coalesce(isfinite(created_at) and created_at < $2::timestamptz, false) from outbox.message_status
where message_id >= $1::bigint order by message_id limit 1`

// firstSince halves the range of numbers until it has found the first message
// that was written at a time or later: no index has the times, and none is worth
// its price on every insert.
func (v *verifier) firstSince(ctx context.Context, tx pgx.Tx, since time.Time) (int64, error) {
	low, high := v.report.From, v.report.To+1
	for low < high {
		middle := low + (high-low)/2
		var id int64
		var before bool
		err := tx.QueryRow(ctx, v.in(sqlNext), middle, since).Scan(&id, &before)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			high = middle
		case err != nil:
			return 0, err
		case before:
			low = id + 1
		default:
			high = middle
		}
	}
	return low, nil
}
