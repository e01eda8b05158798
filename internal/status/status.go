// Package status reads how the relay of one slot is doing, from Postgres alone:
// it works while the relay does not.
//
// It reads; it locks nothing that anybody waits for, and no query grows with
// the tables: counts stop at a bound and say so.
package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/relay/poll"
)

// Report is the state at one moment. Ages and sizes that are not known are nil.
type Report struct {
	SchemaVersion int `json:"schema_version"`
	// Summary is the report in one sentence.
	Summary string `json:"summary"`
	// At is the server's clock.
	At time.Time `json:"at"`
	// Relay is the row of relays; nil until a relay has held the slot.
	Relay *Relay `json:"relay"`
	// Held says why the relay sends nothing on this server; empty if it may. See
	// `outbox-relay adopt`.
	Held string `json:"held"`
	// Slot is nil if there is none of that name.
	Slot *Slot `json:"slot"`
	// Poll is nil unless a relay polls the table.
	Poll *Poll `json:"poll"`
	// WithoutOutcome counts messages that are neither dispatched nor deferred
	// nor dead letters, among the newest ones.
	WithoutOutcome Count `json:"without_outcome"`
	// Deferred counts the messages that wait in the table.
	Deferred Count `json:"deferred"`
	// DeadLetters counts the messages that need a person.
	DeadLetters Count `json:"dead_letters"`
	// Claims is how large the table of claims is.
	Claims Claims `json:"claims"`

	slotName string
}

// Relay is what the relay that holds the slot, or held it last, recorded.
type Relay struct {
	Holder       string     `json:"holder"`
	Version      string     `json:"version"`
	Epoch        int64      `json:"epoch"`
	ConfirmedLSN string     `json:"confirmed_lsn"`
	UpdatedAt    time.Time  `json:"updated_at"`
	ReconciledAt *time.Time `json:"reconciled_at"`
	// SystemIdentifier and Timeline are those of the server that it was on.
	SystemIdentifier string `json:"system_identifier"`
	Timeline         int    `json:"timeline"`
	// SlotMoves counts how often somebody else had moved the slot forward.
	SlotMoves int `json:"slot_moves"`
}

// Poll is the lock of a relay that polls.
type Poll struct {
	PID int `json:"pid"`
}

// Slot is the row of pg_replication_slots.
type Slot struct {
	Name      string `json:"name"`
	Active    bool   `json:"active"`
	ActivePID *int   `json:"active_pid"`
	WALStatus string `json:"wal_status"`
	// InvalidationReason is known from Postgres 17 on.
	InvalidationReason string `json:"invalidation_reason"`
	// RetainedBytes is the WAL that the server keeps for the slot.
	RetainedBytes *int64 `json:"retained_bytes"`
	// UnconfirmedBytes is the WAL behind the confirmed flush.
	UnconfirmedBytes *int64 `json:"unconfirmed_bytes"`
	// SafeBytes is the WAL that may still be written before the slot can be
	// lost; nil without a limit (max_slot_wal_keep_size = -1), or when it is
	// too late.
	SafeBytes *int64 `json:"safe_bytes"`
}

// Count is a number of rows that was counted up to a bound.
type Count struct {
	Count int64 `json:"count"`
	// AtLeast says that there may be more.
	AtLeast bool `json:"at_least"`
	// OldestSeconds is the age of the oldest one that was counted.
	OldestSeconds *float64 `json:"oldest_seconds"`
}

// Bound is where counts stop.
const Bound = 100_000

// statementTimeout bounds each query: a status that hurts is worse than none.
const statementTimeout = 5 * time.Second

// Read reads the state of a slot and of the tables in schema.
func Read(ctx context.Context, conn *pgx.Conn, schema, slot string) (*Report, error) {
	r := &Report{SchemaVersion: 1, slotName: slot}
	err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		limit := fmt.Sprintf("set local statement_timeout = %d", statementTimeout.Milliseconds())
		if _, err := tx.Exec(ctx, limit); err != nil {
			return err
		}
		return r.read(ctx, tx, schema)
	})
	if err != nil {
		return nil, fmt.Errorf("read status: %w", err)
	}
	r.Summary = r.sentence()
	return r, nil
}

func (r *Report) read(ctx context.Context, tx pgx.Tx, schema string) error {
	in := func(sql string) string {
		return strings.ReplaceAll(sql, "outbox.", pgx.Identifier{schema}.Sanitize()+".")
	}
	if err := tx.QueryRow(ctx, "select clock_timestamp()").Scan(&r.At); err != nil {
		return err
	}
	if err := r.readRelay(ctx, tx, in(sqlRelay)); err != nil {
		return err
	}
	if err := r.readSlot(ctx, tx); err != nil {
		return err
	}
	if err := r.readPoll(ctx, tx); err != nil {
		return err
	}
	for _, c := range []struct {
		into *Count
		sql  string
	}{{&r.WithoutOutcome, sqlWithoutOutcome}, {&r.Deferred, sqlDeferred}, {&r.DeadLetters, sqlDeadLetters}} {
		if err := tx.QueryRow(ctx, in(c.sql), Bound).Scan(&c.into.Count, &c.into.AtLeast, &c.into.OldestSeconds); err != nil {
			return err
		}
	}
	return r.readClaims(ctx, tx, in)
}

const sqlRelay = `
select coalesce(holder, ''), coalesce(version, ''), epoch, coalesce(confirmed_lsn::text, ''), updated_at, reconciled_at,
	coalesce(r.system_identifier::text, ''), coalesce(r.timeline, 0), slot_moves,
	case
		when r.system_identifier <> here.system
			then format('another cluster than the relay was on: system %s instead of %s', here.system, r.system_identifier)
		when r.timeline > here.timeline
			then format('an older history than the relay was on: timeline %s instead of %s', here.timeline, r.timeline)
		else ''
	end
from outbox.relays r, (
	select (select system_identifier from pg_control_system()) as system,
		case when not pg_is_in_recovery() then ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int end as timeline
	) here
where slot = $1`

func (r *Report) readRelay(ctx context.Context, tx pgx.Tx, sql string) error {
	var relay Relay
	err := tx.QueryRow(ctx, sql, r.slotName).Scan(
		&relay.Holder, &relay.Version, &relay.Epoch, &relay.ConfirmedLSN, &relay.UpdatedAt, &relay.ReconciledAt,
		&relay.SystemIdentifier, &relay.Timeline, &relay.SlotMoves, &r.Held)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	r.Relay = &relay
	return err
}

// Columns that older servers lack are read through JSON. A standby has no
// current position of its own.
const sqlSlot = `
select s.slot_name, s.active, s.active_pid, coalesce(s.wal_status, ''),
	coalesce(to_jsonb(s) ->> 'invalidation_reason', ''),
	pg_wal_lsn_diff(here.lsn, s.restart_lsn)::bigint, pg_wal_lsn_diff(here.lsn, s.confirmed_flush_lsn)::bigint,
	s.safe_wal_size
from pg_replication_slots s,
	(select case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end as lsn) here
where s.slot_name = $1`

func (r *Report) readSlot(ctx context.Context, tx pgx.Tx) error {
	var s Slot
	err := tx.QueryRow(ctx, sqlSlot, r.slotName).Scan(
		&s.Name, &s.Active, &s.ActivePID, &s.WALStatus, &s.InvalidationReason, &s.RetainedBytes, &s.UnconfirmedBytes, &s.SafeBytes)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	r.Slot = &s
	return err
}

func (r *Report) readPoll(ctx context.Context, tx pgx.Tx) error {
	var p Poll
	err := tx.QueryRow(ctx, poll.HolderSQL, r.slotName).Scan(&p.PID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	r.Poll = &p
	return err
}

// polls reports whether the relay at work, or else the last one, polls.
func (r *Report) polls() bool {
	return r.Poll != nil || r.Relay != nil && r.Relay.ConfirmedLSN == poll.NoPosition
}

// Looks at the newest messages only, by the primary key: older ones without
// outcome are in deferred, or the relay's sweep finds them. The view lets roles
// look that may not read payloads; of its joins nothing is left here, because
// their columns are not asked for.
const sqlWithoutOutcome = `
with newest as materialized (
	select message_id, created_at from outbox.message_status order by message_id desc limit $1::bigint
),
bound as materialized (select min(message_id) as lowest from newest),
undone as (
	select created_at from newest m
	where not exists (select from outbox.dispatched d where d.message_id = m.message_id and d.message_id >= (select lowest from bound))
		and not exists (select from outbox.deferred d where d.message_id = m.message_id and d.message_id >= (select lowest from bound))
		and not exists (select from outbox.dead_letters d where d.message_id = m.message_id and d.message_id >= (select lowest from bound))
)
select count(*), count(*) = $1::bigint,
	extract(epoch from clock_timestamp() - min(created_at) filter (where isfinite(created_at)))::float8
from undone`

const sqlDeferred = `
select count(*), count(*) = $1::bigint, extract(epoch from clock_timestamp() - min(deferred_at))::float8
from (select deferred_at from outbox.deferred limit $1::bigint) d`

const sqlDeadLetters = `
select count(*), count(*) = $1::bigint, extract(epoch from clock_timestamp() - min(died_at))::float8
from (select died_at from outbox.dead_letters where reason <> 'discarded' limit $1::bigint) d`
