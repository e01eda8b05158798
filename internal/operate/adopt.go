package operate

import (
	"context"
	"fmt"
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
	coalesce(r.adopted_at is not null and r.system_identifier = h.system and r.timeline = h.timeline, false)
from (select ` + here + `) h left join outbox.relays r on r.slot = $1`

// Adoption looks at what an adoption would change, and changes nothing. A
// standby cannot be adopted.
func (o *Operator) Adoption(ctx context.Context, slot string) (*Adoption, error) {
	a := Adoption{Slot: slot}
	err := o.conn.QueryRow(ctx, o.in(sqlAdoption), slot).
		Scan(&a.KnownSystem, &a.KnownTimeline, &a.System, &a.Timeline, &a.Adopted)
	if err != nil {
		return nil, fmt.Errorf("look at the server: %w", err)
	}
	if a.WithoutOutcome, a.Deferred, err = o.CountUnfinished(ctx); err != nil {
		return nil, err
	}
	return &a, nil
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
