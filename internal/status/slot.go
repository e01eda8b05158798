package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// SlotReport is all about one slot at one moment. What does not apply, or what
// the version of the server does not know, is nil or empty.
type SlotReport struct {
	SchemaVersion int    `json:"schema_version"`
	Name          string `json:"name"`
	Exists        bool   `json:"exists"`
	// Trouble says why a relay cannot use the slot; empty if it can.
	Trouble string `json:"trouble"`
	// Foreign says that the slot was made for something else.
	Foreign bool `json:"foreign"`

	Type      string `json:"type"`
	Plugin    string `json:"plugin"`
	Database  string `json:"database"`
	Temporary bool   `json:"temporary"`
	Active    bool   `json:"active"`
	ActivePID *int   `json:"active_pid"`
	// Holder is what the process that streams calls itself.
	Holder string `json:"holder"`
	// HeardSeconds is how long ago the server heard from it; nil if it does not tell
	// the role.
	HeardSeconds *float64 `json:"heard_seconds"`
	// Making is nil unless a session is making the slot, and waits.
	Making *Making `json:"making"`
	// InactiveSince is known from Postgres 17 on.
	InactiveSince      *time.Time `json:"inactive_since"`
	WALStatus          string     `json:"wal_status"`
	InvalidationReason string     `json:"invalidation_reason"`
	RestartLSN         string     `json:"restart_lsn"`
	ConfirmedFlushLSN  string     `json:"confirmed_flush_lsn"`
	// RetainedBytes is the WAL that the server keeps for the slot,
	// UnconfirmedBytes the part of it behind the confirmed flush.
	RetainedBytes    *int64 `json:"retained_bytes"`
	UnconfirmedBytes *int64 `json:"unconfirmed_bytes"`
	// LimitBytes is max_slot_wal_keep_size; nil without a limit. SafeBytes is
	// the WAL that may still be written before the slot can be lost.
	LimitBytes *int64 `json:"limit_bytes"`
	SafeBytes  *int64 `json:"safe_bytes"`
	// Failover says that the slot goes along with a failover, Synced that it
	// came from the primary; known from Postgres 17 on.
	Failover *bool `json:"failover"`
	Synced   *bool `json:"synced"`

	// Unused are the other slots of pgoutput in this database that nobody reads.
	Unused []UnusedSlot `json:"unused"`
}

// UnusedSlot is a slot of pgoutput that nobody reads, and that keeps WAL.
type UnusedSlot struct {
	Name          string `json:"name"`
	WALStatus     string `json:"wal_status"`
	RetainedBytes *int64 `json:"retained_bytes"`
	// LastUsed is when a relay of this outbox last recorded something for a slot
	// of that name; nil if none ever did. Such a slot may belong to a
	// subscription, or to another outbox.
	LastUsed *time.Time `json:"last_used"`
}

// Earlier reports whether the slot was one of this outbox: most likely it had
// this name before somebody chose another one.
func (s *UnusedSlot) Earlier() bool { return s.LastUsed != nil }

// Drop is the statement that drops the slot.
func (s *UnusedSlot) Drop() string {
	return "select pg_drop_replication_slot('" + strings.ReplaceAll(s.Name, "'", "''") + "')"
}

// Retained is the WAL that the slot keeps, for people.
func (s *UnusedSlot) Retained() string { return sizeOrUnknown(s.RetainedBytes) }

// Columns that older servers lack are read through JSON.
const sqlSlotReport = `
select s.slot_type, coalesce(s.plugin, ''), coalesce(s.database::text, ''), s.temporary, s.active, s.active_pid,
	coalesce(a.application_name, ''), (to_jsonb(s) ->> 'inactive_since')::timestamptz,
	coalesce(s.wal_status, ''), coalesce(to_jsonb(s) ->> 'invalidation_reason', ''),
	coalesce(s.restart_lsn::text, ''), coalesce(s.confirmed_flush_lsn::text, ''),
	pg_wal_lsn_diff(here.lsn, s.restart_lsn)::bigint, pg_wal_lsn_diff(here.lsn, s.confirmed_flush_lsn)::bigint,
	(select nullif(setting::bigint, -1) * 1024 * 1024 from pg_settings where name = 'max_slot_wal_keep_size'),
	s.safe_wal_size, (to_jsonb(s) ->> 'failover')::bool, (to_jsonb(s) ->> 'synced')::bool, current_database()::text,
	extract(epoch from clock_timestamp() - r.reply_time)::float8, ` + sqlIsMade + `, a.query_start
from pg_replication_slots s left join pg_stat_activity a on a.pid = s.active_pid
	left join pg_stat_replication r on r.pid = s.active_pid,` + sqlHere + `
where s.slot_name = $1`

// A standby has no current position of its own.
const sqlHere = `
	(select case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end as lsn) here`

// On a standby the slots that came from the primary are unused by design.
const sqlUnusedSlots = `
select s.slot_name::text, coalesce(s.wal_status, ''), pg_wal_lsn_diff(here.lsn, s.restart_lsn)::bigint, r.updated_at
from pg_replication_slots s left join outbox.relays r on r.slot = s.slot_name,` + sqlHere + `
where s.slot_type = 'logical' and s.plugin = 'pgoutput' and s.database = current_database()
	and not s.active and not s.temporary and s.slot_name <> $1
	and not (pg_is_in_recovery() and coalesce((to_jsonb(s) ->> 'synced')::bool, false))
order by s.slot_name`

// ReadSlot reads all about a slot.
func ReadSlot(ctx context.Context, conn *pgx.Conn, schema, name string) (*SlotReport, error) {
	r := &SlotReport{SchemaVersion: 1, Name: name, Exists: true}
	var database string
	var making bool
	var asked *time.Time
	err := conn.QueryRow(ctx, sqlSlotReport, name).Scan(
		&r.Type, &r.Plugin, &r.Database, &r.Temporary, &r.Active, &r.ActivePID, &r.Holder, &r.InactiveSince,
		&r.WALStatus, &r.InvalidationReason, &r.RestartLSN, &r.ConfirmedFlushLSN, &r.RetainedBytes, &r.UnconfirmedBytes,
		&r.LimitBytes, &r.SafeBytes, &r.Failover, &r.Synced, &database, &r.HeardSeconds, &making, &asked)
	if err == nil && making {
		r.Making, err = readMaking(ctx, conn, r.ActivePID, asked)
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		r.Exists = false
	case err != nil:
		return nil, fmt.Errorf("read slot %q: %w", name, err)
	}
	r.Trouble = r.foreign(database)
	r.Foreign = r.Trouble != ""
	if !r.Foreign {
		r.Trouble = r.unusable()
	}
	if r.Unused, err = unusedSlots(ctx, conn, schema, name); err != nil {
		return nil, err
	}
	return r, nil
}

// foreign says why the slot cannot be ours; empty if it can.
func (r *SlotReport) foreign(database string) string {
	switch {
	case !r.Exists:
		return ""
	case r.Type != "logical":
		return "is a " + r.Type + " slot"
	case r.Making != nil && r.Plugin == "": // the server knows it a moment later
		return ""
	case r.Plugin != "pgoutput":
		return fmt.Sprintf("belongs to plugin %q", r.Plugin)
	case r.Database != database:
		return fmt.Sprintf("belongs to database %q", r.Database)
	case r.Temporary:
		return "is temporary: it goes with the session that made it"
	}
	return ""
}

func (r *SlotReport) unusable() string {
	switch {
	case !r.Exists:
		return "does not exist"
	case r.InvalidationReason != "":
		return "is lost (" + r.InvalidationReason + ")"
	case r.WALStatus == "lost":
		return "is lost"
	}
	return ""
}

// EarlierSlots are the slots that relays of this outbox used under other names
// than this one, and that nobody reads now. An empty name stands for none.
func EarlierSlots(ctx context.Context, conn *pgx.Conn, schema, name string) ([]UnusedSlot, error) {
	unused, err := unusedSlots(ctx, conn, schema, name)
	var earlier []UnusedSlot
	for _, s := range unused {
		if s.Earlier() {
			earlier = append(earlier, s)
		}
	}
	return earlier, err
}

func unusedSlots(ctx context.Context, conn *pgx.Conn, schema, except string) ([]UnusedSlot, error) {
	sql := strings.ReplaceAll(sqlUnusedSlots, "outbox.", pgx.Identifier{schema}.Sanitize()+".")
	rows, err := conn.Query(ctx, sql, except)
	if err != nil {
		return nil, fmt.Errorf("look for unused slots: %w", err)
	}
	unused, err := pgx.CollectRows(rows, pgx.RowToStructByPos[UnusedSlot])
	if err != nil {
		return nil, fmt.Errorf("look for unused slots: %w", err)
	}
	return unused, nil
}
