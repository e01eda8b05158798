package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// KeyBacklog is what waits in the table of one ordering key.
type KeyBacklog struct {
	Queue string `json:"queue"`
	// OrderingKey is empty for the messages without one, and those that are
	// scheduled, which have no place in their ordering key yet.
	OrderingKey string `json:"ordering_key"`
	Messages    int64  `json:"messages"`
	// Oldest is when the one was deferred that has waited longest.
	Oldest time.Time `json:"oldest"`
	// MessageID is the first in the order in which they go. The others wait for it, if
	// they have an ordering key; what it waits for is in Reason, and in what became of it.
	MessageID int64  `json:"message_id"`
	Reason    string `json:"reason"`
	Attempts  int    `json:"attempts"`
	LastError string `json:"last_error"`
}

// Of very many rows only the first ones are counted, in the order in which they go.
const sqlKeyBacklogs = `
with d as materialized (
	select message_id, position, queue, ordering_key, reason, deferred_at, attempts, last_error
	from outbox.deferred where $1::text = '' or queue = $1::text order by queue, position limit $2::bigint
), k as (
	select queue, ordering_key, count(*) as n, min(deferred_at) as oldest, min(position) as first
	from d group by queue, ordering_key order by n desc, queue, ordering_key limit $3::bigint
)
select k.queue, coalesce(k.ordering_key, ''), k.n, k.oldest, d.message_id, d.reason, d.attempts, coalesce(d.last_error, '')
from k join d on d.queue = k.queue and d.position = k.first
order by k.n desc, k.queue, k.ordering_key`

// DeferredKeys returns the ordering keys with the most deferred messages of a queue,
// or with an empty name of all, the longest first. Of more than [Bound] messages it
// counts the first ones.
func (o *Operator) DeferredKeys(ctx context.Context, queue string, most int) ([]KeyBacklog, error) {
	rows, err := o.conn.Query(ctx, o.in(sqlKeyBacklogs), queue, Bound, most)
	if err != nil {
		return nil, fmt.Errorf("count by ordering key: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[KeyBacklog])
	if err != nil {
		return nil, fmt.Errorf("count by ordering key: %w", err)
	}
	return found, nil
}
