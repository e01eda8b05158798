package status

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/terminal"
)

// Reason is why some of the deferred messages wait. Of very many only the first
// [Bound] by their numbers are looked at.
type Reason struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
	// OldestSeconds is how long ago the first of them was deferred.
	OldestSeconds *float64 `json:"oldest_seconds"`
	// NextSeconds is the time until the first of them is due, 0 if it is; nil if
	// they have no time: they go with their queue or lane.
	NextSeconds *float64 `json:"next_seconds"`
	// MessageID is the first of them in the order in which they go, with its last
	// answer and failure.
	MessageID  int64  `json:"message_id"`
	LastStatus *int   `json:"last_status"`
	LastError  string `json:"last_error"`
	// Queues are those with most of them, at most 100, with the same times.
	Queues []ReasonQueue `json:"queues"`
}

// ReasonQueue is a part of a [Reason].
type ReasonQueue struct {
	Queue       string   `json:"queue"`
	Count       int64    `json:"count"`
	NextSeconds *float64 `json:"next_seconds"`
}

// Of is how many of the messages that wait for a reason are of a queue, as far as
// the queues with most of them are known.
func (r *Report) Of(reason, queue string) int64 {
	for i := range r.DeferredReasons {
		if r.DeferredReasons[i].Reason != reason {
			continue
		}
		for _, q := range r.DeferredReasons[i].Queues {
			if q.Queue == queue {
				return q.Count
			}
		}
	}
	return 0
}

// The first message of a reason is looked up by the index of its queue: nothing is
// sorted that grows with the table.
const sqlReasons = `
with parts as (
	select reason, queue, count(*) as n, min(position) as first,
		extract(epoch from clock_timestamp() - min(deferred_at))::float8 as oldest,
		case when bool_or(isfinite(not_before)) then
			greatest(0, extract(epoch from min(not_before) filter (where isfinite(not_before)) - clock_timestamp()))::float8 end as next
	from (select position, queue, reason, deferred_at, not_before from outbox.deferred order by message_id limit $1::bigint) d
	group by reason, queue
), ranked as (
	select *, row_number() over (partition by reason order by n desc, queue) as rank,
		row_number() over (partition by reason order by first, queue) as turn
	from parts
), reasons as (
	select reason, sum(n)::bigint as n, max(oldest) as oldest, min(next) as next,
		min(first) as first, min(queue) filter (where turn = 1) as queue,
		jsonb_agg(jsonb_build_object('queue', queue, 'count', n, 'next_seconds', next) order by rank) filter (where rank <= 100) as queues
	from ranked group by reason
)
select r.reason, r.n, r.oldest, r.next, d.message_id, d.last_status, coalesce(d.last_error, ''), r.queues
from reasons r cross join lateral (
	select message_id, last_status, last_error from outbox.deferred d
	where d.queue = r.queue and d.position = r.first and d.reason = r.reason limit 1
) d
order by r.n desc, r.reason`

func (r *Report) readReasons(ctx context.Context, tx pgx.Tx, in func(string) string) error {
	rows, err := tx.Query(ctx, in(sqlReasons), Bound)
	if err != nil {
		return err
	}
	r.DeferredReasons, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Reason])
	return err
}

// reasonsInSentence is how many reasons the sentence names.
const reasonsInSentence = 3

// reasons says for what deferred messages wait.
func (r *Report) reasons() string {
	var texts []string
	for i := range r.DeferredReasons {
		if i == reasonsInSentence {
			texts = append(texts, "others")
			break
		}
		reason := &r.DeferredReasons[i]
		texts = append(texts, fmt.Sprintf("%d %s", reason.Count, terminal.Line(reason.Reason)))
	}
	if len(texts) == 0 {
		return ""
	}
	return " (" + strings.Join(texts, ", ") + ")"
}

// reasonText is the reason in the table.
func (r *Report) reasonText(reason *Reason) string {
	text := fmt.Sprintf("%d, %s; first: message %d", reason.Count, r.Next(reason), reason.MessageID)
	if reason.LastStatus != nil && !strings.HasPrefix(reason.LastError, "status ") { // which says the same
		text += fmt.Sprintf(", status %d", *reason.LastStatus)
	}
	if reason.LastError != "" {
		text += ", " + terminal.Line(reason.LastError)
	}
	return text
}
