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

// Mover is who moves messages, as Postgres knows it.
type Mover struct {
	// Relay is the row of relays; nil until a relay has held the slot.
	Relay *Relay `json:"relay"`
	// Held says why the relay sends nothing on this server; empty if it may. See
	// `outbox-relay adopt`.
	Held string `json:"held"`
	// Slot is nil if there is none of that name.
	Slot *Slot `json:"slot"`
	// Poll is nil unless a relay polls the table.
	Poll *Poll `json:"poll"`

	slotName string
}

// ReadMover reads who moves the messages of a schema by a slot. It reads a row of
// relays and the server's own views, and nothing of the messages.
func ReadMover(ctx context.Context, tx pgx.Tx, schema, slot string) (*Mover, error) {
	m := &Mover{slotName: slot}
	err := m.read(ctx, tx, func(sql string) string {
		return strings.ReplaceAll(sql, "outbox.", pgx.Identifier{schema}.Sanitize()+".")
	})
	if err != nil {
		return nil, fmt.Errorf("read who moves messages: %w", err)
	}
	return m, nil
}

func (m *Mover) read(ctx context.Context, tx pgx.Tx, in func(string) string) error {
	if err := m.readRelay(ctx, tx, in(sqlRelay)); err != nil {
		return err
	}
	if err := m.readSlot(ctx, tx); err != nil {
		return err
	}
	return m.readPoll(ctx, tx)
}

// AtWork reports whether a relay has the slot, or the lock of those that poll.
func (m *Mover) AtWork() bool {
	return m.Poll != nil || m.Slot != nil && m.Slot.Active && m.Slot.Making == nil
}

// Polls reports whether the relay at work, or else the last one, polls.
func (m *Mover) Polls() bool {
	return m.Poll != nil || m.Relay != nil && m.Relay.ConfirmedLSN == poll.NoPosition
}

// String says who moves messages, or why nobody does.
func (m *Mover) String() string {
	if m.Held != "" {
		return "dispatching is held: this is " + m.Held
	}
	switch s := m.Slot; {
	case m.Poll != nil:
		return "polling" + m.since(m.Poll.Since, m.Poll.PID)
	case m.Polls() && (s == nil || !s.Active):
		return "no relay is polling"
	case s == nil && m.Relay == nil:
		return "no relay has run yet"
	case s == nil:
		return fmt.Sprintf("slot %q is gone and no relay is streaming", m.slotName)
	case s.InvalidationReason != "":
		return fmt.Sprintf("slot %q is lost (%s)", s.Name, s.InvalidationReason)
	case s.WALStatus == "lost":
		return fmt.Sprintf("slot %q is lost", s.Name)
	case s.Making != nil:
		return s.Making.String()
	case s.Active && s.ActivePID != nil:
		return "active" + m.since(s.ActiveSince, *s.ActivePID) + silence(s.HeardSeconds, s.ActivePID)
	case s.Active:
		return "active" + m.since(s.ActiveSince, 0)
	}
	return "no relay is streaming"
}

// since says since when somebody is at work, and who.
func (m *Mover) since(began *time.Time, pid int) string {
	text := ""
	if began != nil {
		text = " since " + moment(*began)
	}
	switch {
	case m.Relay != nil:
		return text + fmt.Sprintf(" (%s, epoch %d)", m.Relay.Holder, m.Relay.Epoch)
	case pid != 0:
		return text + fmt.Sprintf(" (process %d)", pid)
	}
	return text
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
	// Since is when its session began; nil if the role may not see it.
	Since *time.Time `json:"since"`
}

// Slot is the row of pg_replication_slots.
type Slot struct {
	Name      string `json:"name"`
	Active    bool   `json:"active"`
	ActivePID *int   `json:"active_pid"`
	// ActiveSince is when the session began that reads the slot; nil if the role
	// may not see the sessions of others.
	ActiveSince *time.Time `json:"active_since"`
	// HeardSeconds is how long ago the server heard from the process that reads; nil
	// if it does not tell the role. A relay that lives says something every few
	// seconds.
	HeardSeconds *float64 `json:"heard_seconds"`
	// Making is nil unless a session is making the slot, and waits.
	Making    *Making `json:"making"`
	WALStatus string  `json:"wal_status"`
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
	// LimitBytes is max_slot_wal_keep_size; nil without a limit.
	LimitBytes *int64 `json:"limit_bytes"`
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

func (m *Mover) readRelay(ctx context.Context, tx pgx.Tx, sql string) error {
	var relay Relay
	err := tx.QueryRow(ctx, sql, m.slotName).Scan(
		&relay.Holder, &relay.Version, &relay.Epoch, &relay.ConfirmedLSN, &relay.UpdatedAt, &relay.ReconciledAt,
		&relay.SystemIdentifier, &relay.Timeline, &relay.SlotMoves, &m.Held)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	m.Relay = &relay
	return err
}

// Columns that older servers lack are read through JSON. A standby has no
// current position of its own.
const sqlSlot = `
select s.slot_name, s.active, s.active_pid, coalesce(s.wal_status, ''),
	coalesce(to_jsonb(s) ->> 'invalidation_reason', ''),
	pg_wal_lsn_diff(here.lsn, s.restart_lsn)::bigint, pg_wal_lsn_diff(here.lsn, s.confirmed_flush_lsn)::bigint,
	s.safe_wal_size, (select nullif(setting::bigint, -1) * 1024 * 1024 from pg_settings where name = 'max_slot_wal_keep_size'),
	a.backend_start, extract(epoch from clock_timestamp() - r.reply_time)::float8,
	` + sqlIsMade + `, a.query_start
from pg_replication_slots s left join pg_stat_activity a on a.pid = s.active_pid
	left join pg_stat_replication r on r.pid = s.active_pid,
	(select case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end as lsn) here
where s.slot_name = $1`

func (m *Mover) readSlot(ctx context.Context, tx pgx.Tx) error {
	var s Slot
	var making bool
	var asked *time.Time
	err := tx.QueryRow(ctx, sqlSlot, m.slotName).Scan(
		&s.Name, &s.Active, &s.ActivePID, &s.WALStatus, &s.InvalidationReason, &s.RetainedBytes, &s.UnconfirmedBytes,
		&s.SafeBytes, &s.LimitBytes, &s.ActiveSince, &s.HeardSeconds, &making, &asked)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	m.Slot = &s
	if err != nil || !making {
		return err
	}
	// Each try is a new statement: the slot was announced before the first, in the
	// row if there is one.
	switch relay := m.Relay; {
	case relay == nil:
		asked = s.ActiveSince
	case relay.ReconciledAt == nil:
		asked = &relay.UpdatedAt
	}
	s.Making, err = readMaking(ctx, tx, s.ActivePID, asked)
	return err
}

const sqlPoller = `
select h.pid, a.backend_start from (` + poll.HolderSQL + `) h left join pg_stat_activity a on a.pid = h.pid`

func (m *Mover) readPoll(ctx context.Context, tx pgx.Tx) error {
	var p Poll
	err := tx.QueryRow(ctx, sqlPoller, m.slotName).Scan(&p.PID, &p.Since)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	m.Poll = &p
	return err
}
