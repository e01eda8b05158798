package explain

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Times that no calendar of ours has are left out: only the owner of the table can
// write such.
const writable = ` between '0001-01-01 00:00:00+00' and '9999-12-31 00:00:00+00'`

// Index messages_pkey or messages_key_unique. The view lets roles look that may not
// read payloads; of its joins nothing is left here.
const sqlMessage = `
select message_id, key, queue, coalesce(ordering_key, ''), case when created_at` + writable + ` then created_at end
from outbox.message_status where `

func (r *reader) readMessage(ctx context.Context, condition string, arg any) (bool, error) {
	var m Message
	var id int64
	found, err := r.row(ctx, sqlMessage+condition, []any{arg}, &id, &m.Key, &m.Queue, &m.OrderingKey, &m.CreatedAt)
	if found {
		r.MessageID, r.Message = id, &m
	}
	return found, err
}

// The whole table, because xmin is no column that is granted with others.
const sqlMayRead = `select has_table_privilege($1::text, 'select')`

// Primary key. A row keeps the number of the transaction that wrote it, until an
// upgrade that replaces it by a number below 3.
const sqlDetails = `
select case when xmin::text::bigint > 2 then xmin::text else '' end,
	case when current_setting('track_commit_timestamp') = 'on' then pg_xact_commit_timestamp(xmin) end,
	deliver_at, delay_seconds, priority, octet_length(payload::text),
	case when $2::bool then payload end, case when $2::bool then headers end
from outbox.messages where id = $1::bigint`

// readDetails reads what only those see who may read messages. Who asks for the
// payload and may not read it gets the server's error, which names the table.
func (r *reader) readDetails(ctx context.Context) error {
	if r.Message == nil {
		return nil
	}
	var mayRead bool
	table := pgx.Identifier{r.cfg.Schema, "messages"}.Sanitize()
	if err := r.tx.QueryRow(ctx, sqlMayRead, table).Scan(&mayRead); err != nil {
		return err
	}
	if !mayRead && !r.cfg.Payload {
		return nil
	}
	var d Details
	var payload, headers []byte
	found, err := r.row(ctx, sqlDetails, []any{r.MessageID, r.cfg.Payload},
		&d.Transaction, &d.CommittedAt, &d.DeliverAt, &d.DelaySeconds, &d.Priority, &d.PayloadBytes, &payload, &headers)
	if found {
		d.Payload, d.Headers = payload, headers
		r.Message.Details = &d
	}
	return err
}

// Primary keys.
const (
	sqlAcceptance = `
select dispatched_at, attempts, possible_duplicate, coalesce(queue_message_id, '')
from outbox.dispatched where message_id = $1::bigint`

	sqlDeferral = `
select deferred_at, reason, case when not_before` + writable + ` then not_before end, coalesce(not_before = 'infinity', false),
	attempts, charged, last_status, coalesce(last_error, ''), unknown_since, position, queue,
	xid is null or pg_visible_in_snapshot(xid, pg_current_snapshot())
from outbox.deferred where message_id = $1::bigint`

	sqlDeadLetter = `
select died_at, reason, discarded_at, attempts, last_status, coalesce(last_code, ''), coalesce(last_error, ''),
	coalesce(request_id, ''), unknown_since
from outbox.dead_letters where message_id = $1::bigint`

	sqlWithdrawal = `select withdrawn_at from outbox.withdrawn where message_id = $1::bigint`
)

func (r *reader) readOutcomes(ctx context.Context) error {
	id := []any{r.MessageID}
	var s Acceptance
	found, err := r.row(ctx, sqlAcceptance, id, &s.At, &s.Attempts, &s.PossibleDuplicate, &s.QueueMessageID)
	if err != nil {
		return err
	}
	if found {
		r.Dispatched = &s
	}
	var d Deferral
	found, err = r.row(ctx, sqlDeferral, id, &d.At, &d.Reason, &d.NotBefore, &d.forEverNot, &d.Attempts, &d.Charged,
		&d.LastStatus, &d.LastError, &d.UnknownSince, &d.position, &d.queue, &d.visible)
	if err != nil {
		return err
	}
	if found {
		r.Deferred = &d
	}
	var x DeadLetter
	found, err = r.row(ctx, sqlDeadLetter, id, &x.At, &x.Reason, &x.DiscardedAt, &x.Attempts, &x.LastStatus,
		&x.LastCode, &x.LastError, &x.RequestID, &x.UnknownSince)
	if err != nil {
		return err
	}
	if found {
		r.DeadLetter = &x
	}
	_, err = r.row(ctx, sqlWithdrawal, id, &r.Withdrawn)
	return err
}
