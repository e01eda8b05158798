package cdc

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// crowdedError is a limit of the server that others have used up. It passes when
// one of them leaves.
type crowdedError struct {
	err  error
	used string // how much of it there is and who has it, or nothing
	hint string
}

func (e *crowdedError) Error() string {
	if e.used == "" {
		return e.err.Error()
	}
	return e.err.Error() + "; " + e.used
}

func (e *crowdedError) Unwrap() error { return e.err }

// Hint is a sentence that says what to do.
func (e *crowdedError) Hint() string { return e.hint }

// selectUsed words how much of a limit is used and by whom. The names have no
// pids, so that the text stays the same while nothing changes.
const selectUsed = `
	select pg_catalog.format('%%s of %%s %s are used, by %%s', pg_catalog.count(*), pg_catalog.current_setting('%s'),
	       coalesce(pg_catalog.array_to_string((pg_catalog.array_agg(distinct %s))[1:10], ', '), 'nobody'))
	from pg_catalog.%s`

var (
	selectSlotsUsed   = fmt.Sprintf(selectUsed, "slots (max_replication_slots)", "max_replication_slots", "slot_name::text", "pg_replication_slots")
	selectSendersUsed = fmt.Sprintf(selectUsed, "walsenders (max_wal_senders)", "max_wal_senders",
		"coalesce(nullif(application_name, ''), 'one without a name')", "pg_stat_replication")
)

// slotsUsed says who has the slots.
func slotsUsed(ctx context.Context, conn *pgx.Conn, err error) error {
	return &crowdedError{
		err: err, used: whoUses(ctx, conn, selectSlotsUsed),
		hint: "drop a slot that nobody needs (see pg_replication_slots), or raise max_replication_slots and restart Postgres",
	}
}

// sendersUsed says who has the walsenders, if they are what is used up.
func sendersUsed(ctx context.Context, conn *pgx.Conn, err error) error {
	hint := pgtext.Crowded(err, true)
	if hint == "" {
		return err
	}
	return &crowdedError{err: err, used: whoUses(ctx, conn, selectSendersUsed), hint: hint}
}

// whoUses asks a question that only adds to an error: without an answer it is
// empty.
func whoUses(ctx context.Context, conn *pgx.Conn, query string) (used string) {
	if err := conn.QueryRow(ctx, query).Scan(&used); err != nil {
		return ""
	}
	return used
}
