package operate

import (
	"context"
	"fmt"
)

// Counts what waits in the lane of a dead letter that holds it.
const sqlBehind = `
select count(*) from (
	select from outbox.deferred dead join outbox.deferred d on d.queue = dead.queue and d.position > dead.position
	where dead.message_id = $1 and dead.reason = 'dead_letter' and dead.not_before is null
		and (d.ordering_key = dead.ordering_key
			or exists (select from outbox.queues q where q.queue = dead.queue and q.ordering = 'queue'))
	limit $2::bigint) x`

// Behind counts the messages that wait behind a dead letter, because its queue has
// on_dead_letter = 'hold'.
func (o *Operator) Behind(ctx context.Context, id int64) (Count, error) {
	var n int64
	if err := o.conn.QueryRow(ctx, o.in(sqlBehind), id, Bound+1).Scan(&n); err != nil {
		return Count{}, fmt.Errorf("count what waits behind message %d: %w", id, err)
	}
	return newCount(n), nil
}
