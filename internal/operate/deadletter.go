package operate

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// ReasonDiscarded is the reason of dead letters that are discarded.
const ReasonDiscarded = "discarded"

// DeadLetter is a message that was set aside. Without its message, which the
// application deleted, key, queue and ordering key are empty.
type DeadLetter struct {
	MessageID   int64     `json:"message_id"`
	Key         string    `json:"key"`
	Queue       string    `json:"queue"`
	OrderingKey string    `json:"ordering_key"`
	DiedAt      time.Time `json:"died_at"`
	Reason      string    `json:"reason"`
	Attempts    int       `json:"attempts"`
	// LastStatus is the HTTP status of the last answer; nil without one.
	LastStatus *int   `json:"last_status"`
	LastCode   string `json:"last_code"`
	LastError  string `json:"last_error"`
	RequestID  string `json:"request_id"`
	// MessageGone says that the message was deleted: it cannot be redriven.
	MessageGone bool `json:"message_gone"`
}

// Tries tells how often it was tried, and what that means.
func (d *DeadLetter) Tries() string { return Tries(d.Attempts, d.Reason) }

// Tries tells how often a dead letter was tried, all redrives included, and what
// that has to do with the limit of attempts.
func Tries(attempts int, reason string) string {
	text := strconv.Itoa(attempts)
	switch reason {
	case ReasonDiscarded:
		return text
	case "refused":
		return text + "; the queue refused it for good, whatever the limit of attempts"
	case "attempts_exhausted":
		return text + "; those that count reached the limit; a redrive starts the count anew"
	}
	return text + "; a redrive starts the count towards the limit of attempts anew"
}

// The view shows no payloads, so the right to read them is not needed; of its
// joins nothing is left here, because their columns are not asked for. Dead
// letters are few: they are read one by one.
const sqlMatchingDead = `
from outbox.dead_letters x left join outbox.message_status m on m.message_id = x.message_id
where ($1::bigint[] is null or x.message_id = any ($1::bigint[]))
	and ($2::text = '' or m.key = $2::text)
	and ($3::text = '' or m.queue = $3::text)
	and ($4::text = '' or x.reason = $4::text)
	and ($5::float8 = 0 or x.died_at <= now() - $5::float8 * interval '1 second')
	and ($6::float8 = 0 or x.died_at >= now() - $6::float8 * interval '1 second')
	and ($7::bool or $4::text = 'discarded' or x.reason <> 'discarded')`

const sqlDeadLetters = `
select x.message_id, coalesce(m.key, ''), coalesce(m.queue, ''), coalesce(m.ordering_key, ''), x.died_at, x.reason,
	x.attempts, x.last_status, coalesce(x.last_code, ''), coalesce(x.last_error, ''), coalesce(x.request_id, ''),
	m.message_id is null` + sqlMatchingDead + `
order by x.message_id limit $8::bigint`

// DeadLetters returns those that match, by id.
func (o *Operator) DeadLetters(ctx context.Context, f Filter) ([]DeadLetter, error) {
	rows, err := o.conn.Query(ctx, o.in(sqlDeadLetters), append(f.args(), f.Discarded, f.limit())...)
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[DeadLetter])
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return found, nil
}

const sqlCountDead = `select count(*) from (select 1` + sqlMatchingDead + ` limit $8::bigint) x`

// CountDeadLetters counts those that match, whatever the limit.
func (o *Operator) CountDeadLetters(ctx context.Context, f Filter) (Count, error) {
	var n int64
	err := o.conn.QueryRow(ctx, o.in(sqlCountDead), append(f.args(), f.Discarded, Bound+1)...).Scan(&n)
	if err != nil {
		return Count{}, fmt.Errorf("count dead letters: %w", err)
	}
	return newCount(n), nil
}

// DeadLetter returns one, discarded or not.
func (o *Operator) DeadLetter(ctx context.Context, id int64) (*DeadLetter, error) {
	found, err := o.DeadLetters(ctx, Filter{IDs: []int64{id}, Discarded: true})
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, fmt.Errorf("message %d is no dead letter", id)
	}
	return &found[0], nil
}

const sqlDeadLetterIDs = `select x.message_id, m.message_id is null` + sqlMatchingDead + `
order by x.message_id limit $8::bigint`

// DeadLetterIDs returns the ids of those that match, in order, and apart from
// them the ids of those whose message is gone.
func (o *Operator) DeadLetterIDs(ctx context.Context, f Filter) (ids, gone []int64, err error) {
	rows, err := o.conn.Query(ctx, o.in(sqlDeadLetterIDs), append(f.args(), f.Discarded, f.limit())...)
	if err != nil {
		return nil, nil, fmt.Errorf("find dead letters: %w", err)
	}
	var id int64
	var messageGone bool
	_, err = pgx.ForEachRow(rows, []any{&id, &messageGone}, func() error {
		if messageGone {
			gone = append(gone, id)
		} else {
			ids = append(ids, id)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("find dead letters: %w", err)
	}
	return ids, gone, nil
}

// The text of the last failure stays behind the operator's, as evidence.
const sqlDiscard = `
with discarded as (
	update outbox.dead_letters
	set reason = 'discarded', discarded_at = now(), last_error = $2::text || ' (was ' || reason || coalesce(': ' || last_error, '') || ')'
	where message_id = any ($1::bigint[]) and reason <> 'discarded'
	returning message_id
), freed as (
	update outbox.deferred set not_before = now()
	where message_id in (select message_id from discarded) and reason = 'dead_letter'
)
select count(*) from discarded`

// Discard says that dead letters will not be sent, and why. They stay on record
// and count as discarded, not as something that needs a person. It returns how
// many were not discarded before. A lane that waits for one of them goes on.
func (o *Operator) Discard(ctx context.Context, ids []int64, why string) (n int, err error) {
	if err := o.conn.QueryRow(ctx, o.in(sqlDiscard), ids, why).Scan(&n); err != nil {
		return 0, fmt.Errorf("discard: %w", err)
	}
	return n, nil
}
