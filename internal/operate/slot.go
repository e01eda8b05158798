package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A position means nothing for another slot: compared with it, the new one would
// look as if somebody had moved it.
const sqlExpectNewSlot = `
update outbox.relays set reconciled_at = null, confirmed_lsn = null, closed_at = null, updated_at = now() where slot = $1`

// ExpectNewSlot makes it known that a slot is about to be made anew: the next
// relay that takes it looks through the table for what the slot does not show. A
// slot that no relay has used yet needs no record for that.
func (o *Operator) ExpectNewSlot(ctx context.Context, slot string) error {
	_, err := o.conn.Exec(ctx, o.in(sqlExpectNewSlot), slot)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "42501" {
		return o.lacking(ctx, "select, update", "relays", err)
	}
	return err
}

// Reads the primary key of the messages next to those of the outcomes.
const sqlWithoutOutcome = `
select count(*) from (
	select from outbox.message_status m
	where not exists (select from outbox.dispatched d where d.message_id = m.message_id)
		and not exists (select from outbox.dead_letters d where d.message_id = m.message_id)
		and not exists (select from outbox.deferred d where d.message_id = m.message_id)
	limit $1) m`

const sqlCountAllDeferred = `select count(*) from (select from outbox.deferred limit $1) d`

// CountUnfinished counts the messages that have no outcome and are not deferred,
// and those that wait in the table.
func (o *Operator) CountUnfinished(ctx context.Context) (withoutOutcome, deferred Count, err error) {
	for _, c := range []struct {
		into *Count
		sql  string
	}{{&withoutOutcome, sqlWithoutOutcome}, {&deferred, sqlCountAllDeferred}} {
		var n int64
		if err := o.conn.QueryRow(ctx, o.in(c.sql), Bound+1).Scan(&n); err != nil {
			return Count{}, Count{}, fmt.Errorf("count messages: %w", err)
		}
		*c.into = newCount(n)
	}
	return withoutOutcome, deferred, nil
}

// RightError says which right the role lacks.
type RightError struct {
	grant string
	err   error
}

// Error implements error.
func (e *RightError) Error() string { return e.err.Error() }

// Hint says who gives the right, and how.
func (e *RightError) Hint() string { return "as the owner of the table: " + e.grant }

// Unwrap returns the server's error.
func (e *RightError) Unwrap() error { return e.err }

// lacking is the error of a role that lacks rights on one of our tables.
func (o *Operator) lacking(ctx context.Context, rights, table string, err error) error {
	var role string
	if askErr := o.conn.QueryRow(ctx, "select current_user::text").Scan(&role); askErr != nil {
		return err // the connection is in trouble, too
	}
	return &RightError{
		grant: fmt.Sprintf("grant usage on schema %s to %s; grant %s on %s to %[2]s",
			pgx.Identifier{o.schema}.Sanitize(), pgx.Identifier{role}.Sanitize(), rights, pgx.Identifier{o.schema, table}.Sanitize()),
		err: err,
	}
}
