package explain

import (
	"context"
	"fmt"
	"math"

	"github.com/outbox-relay/outbox-relay/internal/paused"
)

// Primary key.
var sqlQueue = `
select paused, ` + paused.Columns("q") + `, ordering, max_in_flight, rate_per_second, max_attempts, on_dead_letter, envelope
from outbox.queues q where queue = $1::text`

// readQueue reads the settings of the message's queue; without a row they are the
// defaults.
func (r *reader) readQueue(ctx context.Context) error {
	q := Queue{Ordering: "key", OnDeadLetter: "continue", Envelope: "none"}
	switch {
	case r.Message != nil:
		q.Name = r.Message.Queue
	case r.Deferred != nil:
		q.Name = r.Deferred.queue
	default:
		return nil // nobody knows its queue any more
	}
	_, err := r.row(ctx, sqlQueue, []any{q.Name},
		&q.Paused, &q.At, &q.By, &q.Reason, &q.Ordering, &q.MaxInFlight, &q.RatePerSecond, &q.MaxAttempts, &q.OnDeadLetter, &q.Envelope)
	r.Queue = &q
	if d := r.Deferred; d != nil {
		d.MaxAttempts = r.cfg.MaxAttempts
		if q.MaxAttempts != nil {
			d.MaxAttempts = *q.MaxAttempts
		}
	}
	return err
}

// Indexes deferred_queue and deferred_lane. A scheduled message is in no lane
// before its time has come.
const (
	ofQueue = ` from outbox.deferred where queue = $1::text and position < $2::bigint and reason <> 'scheduled'`
	ofLane  = ` from outbox.deferred where queue = $1::text and position < $2::bigint and ordering_key = $3::text`

	selectFirst = `select message_id, reason, case when not_before` + writable + ` then not_before end, last_status, coalesce(last_error, '')`
)

// count counts rows up to the bound, in the order of an index.
func (r *reader) count(ctx context.Context, from string, args []any, into *int64) error {
	return r.tx.QueryRow(ctx, r.in(fmt.Sprintf(`select count(*) from (select 1%s order by position limit %d) t`, from, Bound)), args...).Scan(into)
}

// readLane reads what is before a message that waits.
func (r *reader) readLane(ctx context.Context) error {
	waits := r.Message != nil && r.Dispatched == nil && r.DeadLetter == nil && r.Withdrawn == nil
	if !waits || r.Deferred != nil && r.Deferred.Reason == "scheduled" {
		return nil
	}
	lane := &Lane{Kind: "message"}
	before := int64(math.MaxInt64) // one that is not there yet comes behind all that are
	if r.Deferred != nil {
		before = r.Deferred.position
	}
	from, args := "", []any{r.Queue.Name, before}
	switch {
	case r.Queue.Ordering == "queue":
		lane.Kind, from = "queue", ofQueue
	case r.Message.OrderingKey != "":
		lane.Kind, from = "ordering_key", ofLane
	}
	if err := r.count(ctx, ofQueue, args, &lane.InQueue); err != nil {
		return err
	}
	r.Lane = lane
	if from == "" {
		return nil
	}
	if from == ofLane {
		args = append(args, r.Message.OrderingKey)
	}
	if err := r.count(ctx, from, args, &lane.Before); err != nil {
		return err
	}
	var first First
	found, err := r.row(ctx, selectFirst+from+` order by position limit 1`, args,
		&first.MessageID, &first.Reason, &first.NotBefore, &first.LastStatus, &first.LastError)
	if found {
		lane.First = &first
	}
	return err
}
