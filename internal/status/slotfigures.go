package status

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// SlotFigures are what only machines want to know of a slot. All is nil without
// the slot, and what the version of the server does not know always is.
type SlotFigures struct {
	// InactiveSince is known from Postgres 17 on.
	InactiveSince *time.Time
	// IdleLimitSeconds is idle_replication_slot_timeout, known from Postgres 18 on; nil
	// without a limit.
	IdleLimitSeconds *float64
	// CatalogXmin is the oldest transaction whose catalog rows the slot keeps from
	// vacuum, CatalogAge how many transactions have begun since.
	CatalogXmin *string
	CatalogAge  *int64
	// Spilled are the transactions of any table that were too large to decode in
	// memory, and DecodedBytes all that was decoded for the slot.
	SpilledTransactions *int64
	SpilledBytes        *int64
	DecodedBytes        *int64
	// Failover says that the slot goes along with a failover, FailoverReady that the
	// standbys which are to get it are connected and hold slots. That is nil where no
	// standby is known to want it. Both are known from Postgres 17 on.
	Failover      *bool
	FailoverReady *bool
}

// Columns that older servers lack are read through JSON. A standby that keeps
// copies of slots tells so by the catalog_xmin of its own slot: for them it needs
// hot_standby_feedback. Which of them count is what synchronized_standby_slots
// says; where that is empty, one is enough.
const sqlSlotFigures = `
with ours as (
	select slot_name, (to_jsonb(s) ->> 'inactive_since')::timestamptz as inactive_since, catalog_xmin,
		nullif(extract(epoch from current_setting('idle_replication_slot_timeout', true)::interval), 0)::float8 as idle_limit,
		(to_jsonb(s) ->> 'failover')::bool as failover
	from pg_replication_slots s where slot_name = $1
),
standbys as (
	select slot_name, active as ready from pg_replication_slots where slot_type = 'physical' and catalog_xmin is not null
),
named as (
	select btrim(name) as name
	from unnest(string_to_array(coalesce(current_setting('synchronized_standby_slots', true), ''), ',')) name where btrim(name) <> ''
)
select inactive_since, idle_limit, catalog_xmin::text, age(catalog_xmin)::bigint, spill_txns, spill_bytes, total_bytes, failover,
	case
		when failover is not true then null
		when exists (select from named) then (select bool_and(coalesce(ready, false)) from named left join standbys on slot_name = name)
		else (select bool_or(ready) from standbys)
	end
from ours left join pg_stat_replication_slots decoded using (slot_name)`

func (s *SlotFigures) read(ctx context.Context, tx pgx.Tx, slot string) error {
	rows, err := tx.Query(ctx, sqlSlotFigures, slot)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, []any{
		&s.InactiveSince, &s.IdleLimitSeconds, &s.CatalogXmin, &s.CatalogAge, &s.SpilledTransactions, &s.SpilledBytes, &s.DecodedBytes,
		&s.Failover, &s.FailoverReady,
	}, func() error { return nil })
	return err
}

// Writer is a connection that writes outcomes, or looks for what has none.
type Writer struct {
	// Session is a name that no other session of the server has.
	Session string
	// WALBytes is what the session has written.
	WALBytes int64
}

const sqlKnowsWriters = `select to_regprocedure('pg_stat_get_backend_wal(int)') is not null`

// What the sessions are called is cut off where the server cuts it.
const sqlWriters = `
select a.pid || ' ' || a.backend_start, coalesce(w.wal_bytes, 0)::bigint
from pg_stat_activity a, pg_stat_get_backend_wal(a.pid) w
where a.application_name = left('outbox-relay ' || $1, 63) and a.datname = current_database() and a.usename = current_user
limit 100`

// readWriters reads what the sessions have written in which relays of a slot do
// their work; none before Postgres 18, which is the first to count it.
func readWriters(ctx context.Context, tx pgx.Tx, slot string) (writers []Writer, err error) {
	var known bool
	if err := tx.QueryRow(ctx, sqlKnowsWriters).Scan(&known); err != nil || !known {
		return nil, err
	}
	rows, err := tx.Query(ctx, sqlWriters, slot)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Writer])
}
