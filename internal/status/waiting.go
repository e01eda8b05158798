package status

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// QueueCount is a number of messages of one queue.
type QueueCount struct {
	Queue string `json:"queue"`
	Count int64  `json:"count"`
	// OldestSeconds is the age of the oldest one.
	OldestSeconds *float64 `json:"oldest_seconds"`

	settled int64 // of them those that the stream has had time to show
}

const (
	// waitingQueues is how many queues are listed that have messages without outcome.
	waitingQueues = 100
	// settledAfter is how many seconds old a message is that a stream in good health
	// has shown: mostly it takes milliseconds.
	settledAfter = 5.0
)

// Looks at the newest messages only, by the primary key: older ones without
// outcome are in deferred, or the relay's sweep finds them. The view lets roles
// look that may not read payloads; of its joins nothing is left here, because
// their columns are not asked for. The first row is about all queues.
const sqlWithoutOutcome = `
with newest as materialized (
	select message_id, coalesce(queue, '') as queue, created_at from outbox.message_status order by message_id desc limit $1::bigint
),
bound as materialized (select min(message_id) as lowest from newest),
undone as (
	select queue, created_at from newest m
	where not exists (select from outbox.dispatched d where d.message_id = m.message_id and d.message_id >= (select lowest from bound))
		and not exists (select from outbox.deferred d where d.message_id = m.message_id and d.message_id >= (select lowest from bound))
		and not exists (select from outbox.dead_letters d where d.message_id = m.message_id and d.message_id >= (select lowest from bound))
)
select grouping(queue) = 1, coalesce(queue, ''), count(*), count(*) filter (where created_at <= now() - $2::float8 * interval '1 second'),
	extract(epoch from clock_timestamp() - min(created_at) filter (where isfinite(created_at)))::float8
from undone group by grouping sets ((), (queue))
order by grouping(queue) desc, count(*) desc, queue limit $3::bigint`

func (r *Report) readWaiting(ctx context.Context, tx pgx.Tx, in func(string) string) error {
	rows, err := tx.Query(ctx, in(sqlWithoutOutcome), Bound, settledAfter, 1+waitingQueues)
	if err != nil {
		return err
	}
	var all bool
	var q QueueCount
	r.WithoutOutcomeQueues = []QueueCount{}
	_, err = pgx.ForEachRow(rows, []any{&all, &q.Queue, &q.Count, &q.settled, &q.OldestSeconds}, func() error {
		if all {
			r.WithoutOutcome = Count{Count: q.Count, AtLeast: q.Count >= Bound, OldestSeconds: q.OldestSeconds}
			r.settled = q.settled
			return nil
		}
		r.WithoutOutcomeQueues = append(r.WithoutOutcomeQueues, q)
		return nil
	})
	return err
}
