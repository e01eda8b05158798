package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/blocker"
)

// slot is the row of pg_replication_slots. Its reason is empty on servers that
// do not tell one.
type slot struct {
	kind, plugin, database string
	temporary              bool
	walStatus, reason      string
	conflicting, active    bool
	made                   bool // it has a place from which it can be read
	pid                    int  // of who has it; 0 if nobody has
}

// beingMade reports whether a session has the slot that only makes it yet.
func (s *slot) beingMade() bool { return s != nil && s.kind == "logical" && s.active && !s.made }

// readSlot returns nil if there is no slot of our name.
func (p *patient) readSlot(ctx context.Context) (*slot, error) {
	var s slot
	err := p.conn.QueryRow(ctx, `
		select slot_type, coalesce(plugin, ''), coalesce(database, ''), temporary,
			coalesce(wal_status, ''), coalesce(to_jsonb(s) ->> 'invalidation_reason', ''),
			coalesce((to_jsonb(s) ->> 'conflicting')::bool, false), active, confirmed_flush_lsn is not null, coalesce(active_pid, 0)
		from pg_replication_slots s where slot_name = $1`, p.cfg.Slot).
		Scan(&s.kind, &s.plugin, &s.database, &s.temporary, &s.walStatus, &s.reason, &s.conflicting, &s.active, &s.made, &s.pid)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &s, err
}

// foreign says why the slot cannot be ours; empty if it can.
func (s *slot) foreign(p *patient) string {
	switch {
	case s.kind != "logical":
		return "is a " + s.kind + " slot"
	case s.beingMade() && s.plugin == "": // the server knows it a moment later
		return ""
	case s.plugin != "pgoutput":
		return "belongs to plugin " + ident(s.plugin)
	case s.database != p.conn.Config().Database:
		return "belongs to database " + ident(s.database)
	case s.temporary:
		return "is temporary: it goes with the session that made it"
	}
	return ""
}

// slotKind looks whether there is a slot, and whether it can be ours.
func slotKind(ctx context.Context, p *patient) (finding, error) {
	s, err := p.readSlot(ctx)
	if err != nil {
		return finding{}, err
	}
	if s == nil {
		return p.slotMissing(ctx)
	}
	p.slot = s
	if why := s.foreign(p); why != "" {
		return finding{
			status: Fail, observed: why,
			message: "slot " + ident(p.cfg.Slot) + " " + why + "; the relay will not touch it",
			remedy:  "set RELAY_SLOT to another name; or, if nobody needs that slot, drop it with pg_drop_replication_slot",
		}, nil
	}
	switch {
	case s.beingMade():
		return p.slotWaits(ctx)
	case s.active:
		return pass("exists, in use"), nil
	}
	return pass("exists, not in use"), nil
}

// slotWaits is about a slot that is there by name only: it looks like one in use,
// and nothing can be read from it before every writer of the server has ended that
// was open when its making began.
func (p *patient) slotWaits(ctx context.Context) (finding, error) {
	maker := p.slot.pid
	p.slot = nil // there is nothing to ask of it yet
	found, err := blocker.Of(ctx, p.conn, maker)
	if err != nil {
		return finding{}, err
	}
	f := finding{
		status: Fail, observed: fmt.Sprintf("is being made by pid %d, which waits for %v", maker, found),
		expected: "a slot that is made",
		message:  "slot " + ident(p.cfg.Slot) + " is not made before every transaction of the server has ended that has written something, in any database: no message goes out",
		remedy:   found.Hint(),
	}
	if found == nil {
		f.status, f.remedy = Warn, "look again in a moment"
	}
	if open := found.Open(); open != "" {
		f.observed += ", " + open
	}
	if end := found.End(); end != "" {
		f.sql = script(end)
	}
	return f, nil
}

// slotMissing is no fault before the first start: the relay makes its slot
// itself. Afterwards somebody dropped it, or a failover did not bring it along.
func (p *patient) slotMissing(ctx context.Context) (finding, error) {
	f := finding{
		status: Warn, observed: "does not exist",
		message: "slot " + ident(p.cfg.Slot) + " does not exist yet: the relay makes it at its start, and takes older messages from the table",
		remedy:  "start the relay; or make the slot ahead of it with `outbox-relay slot create`, or with SQL, as a role that may replicate",
		sql:     script(p.makeSlot()),
	}
	if p.held {
		return skip("there is none, and the relay makes none here before this server is adopted: D46"), nil
	}
	used, err := p.usedBefore(ctx)
	if err != nil || !used {
		return f, err
	}
	f.status = Fail
	f.message = "slot " + ident(p.cfg.Slot) + " is gone: it was dropped, or a failover did not bring it along. " +
		"The messages are safe in the table"
	f.remedy = "restart the relay: it makes the slot and takes what was written meanwhile from the table; " +
		"or make the slot by hand, with `outbox-relay slot create` or with SQL, and restart the relay then"
	f.sql = script(p.announceSlot(), p.makeSlot())
	return f, nil
}

// usedBefore reports whether a slot of this name served a relay, and nobody has
// said since that a new one is to come: `outbox-relay slot drop` does.
func (p *patient) usedBefore(ctx context.Context) (used bool, err error) {
	there, err := p.exists(ctx, "relays")
	if err != nil || !there {
		return false, err
	}
	err = p.conn.QueryRow(ctx, p.in(`select exists (select from outbox.relays where slot = $1 and reconciled_at is not null)`), p.cfg.Slot).Scan(&used)
	return used, err
}

// slotUsable looks whether the server still has the WAL that the slot needs.
func slotUsable(_ context.Context, p *patient) (finding, error) {
	s := p.slot
	switch {
	case s == nil:
		return skip("there is no slot yet"), nil
	case s.reason == "" && s.walStatus != "lost" && !s.conflicting:
		return pass("wal_status " + s.walStatus), nil
	}
	why := "wal_status " + s.walStatus
	if s.reason != "" {
		why += ", " + s.reason
	}
	return finding{
		status: Fail, observed: why,
		message: "slot " + ident(p.cfg.Slot) + " is lost (" + why + "): the server threw away WAL that it needed. " +
			"The messages are safe in the table",
		remedy: "restart the relay with RELAY_SLOT_LOST=recreate, which makes the slot anew and takes what was written " +
			"meanwhile from the table; or do it by hand, with `outbox-relay slot recreate --yes` or with SQL. Raise max_slot_wal_keep_size, so that " +
			"it does not happen again",
		sql: script(p.remakeSlot()...),
	}, nil
}

// remakeSlot replaces a slot that cannot be used any more. The next start of
// the relay looks through the table, because the new slot shows nothing that
// was committed before it.
func (p *patient) remakeSlot() []string {
	return []string{
		"select pg_drop_replication_slot(" + literal(p.cfg.Slot) + ")",
		p.announceSlot(),
		p.makeSlot(),
	}
}

// announceSlot is the statement that tells the next relay that its slot is a new
// one: it looks through the table, and compares no position with an old one.
func (p *patient) announceSlot() string {
	return "update " + p.table("relays") + " set reconciled_at = null, confirmed_lsn = null, closed_at = null where slot = " + literal(p.cfg.Slot)
}

// makeSlot makes the slot as the relay does: from 17 on it survives a failover.
func (p *patient) makeSlot() string {
	arguments := literal(p.cfg.Slot) + ", 'pgoutput'"
	if p.version >= failoverSince {
		arguments += ", failover => true"
	}
	return fmt.Sprintf("select pg_create_logical_replication_slot(%s)", arguments)
}
