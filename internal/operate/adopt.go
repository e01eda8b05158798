package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Adoption is what making this server the relay's own would mean.
type Adoption struct {
	Slot string `json:"slot"`
	// KnownSystem and KnownTimeline are those of the server that the relay was on
	// last: empty and 0 if none is on record.
	KnownSystem   string `json:"known_system"`
	KnownTimeline int    `json:"known_timeline"`
	// System and Timeline are those of this server.
	System   string `json:"system"`
	Timeline int    `json:"timeline"`
	// Adopted says that this has been done, and no relay has come yet.
	Adopted bool `json:"adopted"`
	// WithoutOutcome counts the messages that have no outcome and are not
	// deferred, Deferred those that wait in the table: all of them would be sent.
	WithoutOutcome Count `json:"without_outcome"`
	Deferred       Count `json:"deferred"`
	// LastRecord is when a relay wrote its row last, as this server has it, which one
	// at work does at least once a minute; nil if there is none. After an adoption it
	// is the time of that.
	LastRecord *time.Time `json:"last_record"`
	// AfterRecord counts those of the messages that were written later than that: in
	// a copy they are no copies.
	AfterRecord Count `json:"after_record"`
	// Queues are the same messages by queue, as far as they were counted.
	Queues []UnsentQueue `json:"queues"`
}

// UnsentQueue is what a queue would be sent.
type UnsentQueue struct {
	Queue          string `json:"queue"`
	WithoutOutcome int64  `json:"without_outcome"`
	Deferred       int64  `json:"deferred"`
	// Oldest and Newest are when the application wrote them; nil if that is not known.
	Oldest *time.Time `json:"oldest"`
	Newest *time.Time `json:"newest"`
	// AfterRecord counts those that were written after [Adoption.LastRecord].
	AfterRecord int64 `json:"after_record"`
}

// Held reports whether a relay would not dispatch here as it is.
func (a *Adoption) Held() bool {
	switch {
	case a.Adopted || a.KnownSystem == "":
		return false
	case a.KnownSystem != a.System:
		return true
	}
	return a.KnownTimeline > a.Timeline
}

// here is this server's system identifier and the timeline that it writes.
const here = `
	(select system_identifier from pg_control_system()) as system,
	('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int as timeline`

const sqlAdoption = `
select coalesce(r.system_identifier::text, ''), coalesce(r.timeline, 0), h.system::text, h.timeline,
	coalesce(r.adopted_at is not null and r.system_identifier = h.system and r.timeline = h.timeline, false), r.updated_at
from (select ` + here + `) h left join outbox.relays r on r.slot = $1`

// Cluster compares this server with the one that the relay was on last, and counts
// nothing. A standby cannot be adopted.
func (o *Operator) Cluster(ctx context.Context, slot string) (*Adoption, error) {
	a := Adoption{Slot: slot}
	err := o.conn.QueryRow(ctx, o.in(sqlAdoption), slot).
		Scan(&a.KnownSystem, &a.KnownTimeline, &a.System, &a.Timeline, &a.Adopted, &a.LastRecord)
	if err != nil {
		return nil, fmt.Errorf("look at the server: %w", err)
	}
	return &a, nil
}

// Adoption looks at what an adoption would change, and changes nothing.
func (o *Operator) Adoption(ctx context.Context, slot string) (*Adoption, error) {
	a, err := o.Cluster(ctx, slot)
	if err != nil {
		return nil, err
	}
	if err := o.readUnsent(ctx, a); err != nil {
		return nil, fmt.Errorf("count messages: %w", err)
	}
	return a, nil
}

// The first ones are counted, up to a bound. The view lets roles look that may not
// read payloads.
const sqlUnsent = `
with unsent as (
	(select coalesce(m.queue, '') as queue, m.created_at, false as deferred from outbox.message_status m
	where not exists (select from outbox.dispatched d where d.message_id = m.message_id)
		and not exists (select from outbox.dead_letters d where d.message_id = m.message_id)
		and not exists (select from outbox.deferred d where d.message_id = m.message_id)
	order by m.message_id limit $1)
	union all
	select d.queue, m.created_at, true
	from (select message_id, queue from outbox.deferred order by message_id limit $1) d left join outbox.message_status m using (message_id)
)
select queue, count(*) filter (where not deferred), count(*) filter (where deferred),
	min(created_at) filter (where isfinite(created_at)), max(created_at) filter (where isfinite(created_at)),
	count(*) filter (where created_at > $2::timestamptz)
from unsent group by queue order by queue`

func (o *Operator) readUnsent(ctx context.Context, a *Adoption) error {
	rows, err := o.conn.Query(ctx, o.in(sqlUnsent), Bound+1, a.LastRecord)
	if err != nil {
		return err
	}
	if a.Queues, err = pgx.CollectRows(rows, pgx.RowToStructByPos[UnsentQueue]); err != nil {
		return err
	}
	var without, deferred, after int64
	for i := range a.Queues {
		q := &a.Queues[i]
		without, deferred, after = without+q.WithoutOutcome, deferred+q.Deferred, after+q.AfterRecord
	}
	a.WithoutOutcome, a.Deferred = newCount(without), newCount(deferred)
	a.AfterRecord = Count{Count: after, AtLeast: a.WithoutOutcome.AtLeast || a.Deferred.AtLeast}
	return nil
}

// Positions of another cluster mean nothing here, and a slot of this one may
// have missed what was restored before it: the next relay reconciles.
const sqlAdopt = `
insert into outbox.relays as r (slot, system_identifier, timeline, adopted_at)
select $1, h.system, h.timeline, now() from (select ` + here + `) h
on conflict (slot) do update set
	confirmed_lsn = case when r.system_identifier = excluded.system_identifier then r.confirmed_lsn end,
	reconciled_at = case when r.system_identifier = excluded.system_identifier then r.reconciled_at end,
	closed_at = null, adopted_at = now(), updated_at = now(),
	system_identifier = excluded.system_identifier, timeline = excluded.timeline`

// Adopt makes this server the relay's own. A relay that waits for it goes on
// within seconds.
func (o *Operator) Adopt(ctx context.Context, slot string) error {
	if _, err := o.conn.Exec(ctx, o.in(sqlAdopt), slot); err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	return nil
}
