package operate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Deferred is a message that waits in the table.
type Deferred struct {
	MessageID int64 `json:"message_id"`
	// Key is empty if the application has deleted the message.
	Key         string    `json:"key"`
	Queue       string    `json:"queue"`
	OrderingKey string    `json:"ordering_key"`
	Reason      string    `json:"reason"`
	DeferredAt  time.Time `json:"deferred_at"`
	// NotBefore is when it is tried; nil: when its queue or lane goes on.
	NotBefore *time.Time `json:"not_before"`
	Attempts  int        `json:"attempts"`
	// Charged are the failed attempts that count towards a dead letter.
	Charged    int    `json:"charged"`
	LastStatus *int   `json:"last_status"`
	LastError  string `json:"last_error"`
	// UnknownSince is the first attempt that ended without an answer.
	UnknownSince *time.Time `json:"unknown_since"`
}

// Kind says for what messages wait that an act is about.
type Kind int

const (
	// Retries wait for their next attempt.
	Retries Kind = iota
	// Scheduled ones wait for the time that the application asked for.
	Scheduled
)

const sqlMatchingDeferred = `
from outbox.deferred d left join outbox.message_status m on m.message_id = d.message_id
where ($1::bigint[] is null or d.message_id = any ($1::bigint[]))
	and ($2::text = '' or m.key = $2::text)
	and ($3::text = '' or d.queue = $3::text)
	and ($4::text = '' or d.reason = $4::text)
	and ($5::float8 = 0 or d.deferred_at <= now() - $5::float8 * interval '1 second')
	and ($6::float8 = 0 or d.deferred_at >= now() - $6::float8 * interval '1 second')`

const sqlDeferredList = `
select d.message_id, coalesce(m.key, ''), d.queue, coalesce(d.ordering_key, m.ordering_key, ''), d.reason, d.deferred_at,
	d.not_before, d.attempts, d.charged, d.last_status, coalesce(d.last_error, ''), d.unknown_since` + sqlMatchingDeferred + `
order by d.message_id limit $7::bigint`

// Deferred returns those that match, by id.
func (o *Operator) Deferred(ctx context.Context, f Filter) ([]Deferred, error) {
	rows, err := o.conn.Query(ctx, o.in(sqlDeferredList), append(f.args(), f.limit())...)
	if err != nil {
		return nil, fmt.Errorf("list deferred messages: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Deferred])
	if err != nil {
		return nil, fmt.Errorf("list deferred messages: %w", err)
	}
	return found, nil
}

const sqlCountDeferred = `select count(*) from (select 1` + sqlMatchingDeferred + ` limit $7::bigint) x`

// CountDeferred counts those that match, whatever the limit.
func (o *Operator) CountDeferred(ctx context.Context, f Filter) (Count, error) {
	var n int64
	if err := o.conn.QueryRow(ctx, o.in(sqlCountDeferred), append(f.args(), Bound+1)...).Scan(&n); err != nil {
		return Count{}, fmt.Errorf("count deferred messages: %w", err)
	}
	return newCount(n), nil
}

const sqlWaitingIDs = `select d.message_id` + sqlMatchingDeferred + `
	and d.not_before > now() and (d.reason = 'scheduled') = $7::bool
order by d.message_id limit $8::bigint`

// WaitingIDs returns the ids of those that match and wait for a time, in order.
// The others go as soon as their queue or lane does: no time keeps them.
func (o *Operator) WaitingIDs(ctx context.Context, kind Kind, f Filter) ([]int64, error) {
	rows, err := o.conn.Query(ctx, o.in(sqlWaitingIDs), append(f.args(), kind == Scheduled, f.limit())...)
	if err != nil {
		return nil, fmt.Errorf("find deferred messages: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("find deferred messages: %w", err)
	}
	return ids, nil
}

// Leaves out rows that the relay is writing at this moment: they change anyway,
// and who never waits for a row takes part in no deadlock.
const sqlMakeDue = `
update outbox.deferred set not_before = now()
where message_id in (
	select message_id from outbox.deferred
	where message_id = any ($1::bigint[]) and not_before > now() and (reason = 'scheduled') = $2::bool
	for update skip locked
)`

// dueBatch is the number of rows in one transaction. The relay loads due rows
// in chunks of its own and needs no pause in between.
const dueBatch = 1000

// MakeDue ends the wait of deferred messages and returns for how many. Their
// place in the lane, key and attempts stay what they are.
func (o *Operator) MakeDue(ctx context.Context, kind Kind, ids []int64) (done int, err error) {
	for batch := range slices.Chunk(ids, dueBatch) {
		tag, err := o.conn.Exec(ctx, o.in(sqlMakeDue), batch, kind == Scheduled)
		if err != nil {
			return done, fmt.Errorf("make due: %w", err)
		}
		done += int(tag.RowsAffected())
	}
	return done, nil
}
