package doctor

import (
	"context"
	"fmt"
	"time"
)

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30
	// suggestedKeep is enough for a weekend of most outboxes, and small beside
	// most disks.
	suggestedKeep = 10 * gibibyte
	// muchWAL is what a slot keeps only if it is not read, or if a transaction is
	// open for long: a queue that is down does not pin WAL.
	muchWAL = gibibyte
	// shortIdle is a relay that is down for an hour.
	shortIdle = time.Hour
	// idleSince is the first version that drops idle slots.
	idleSince = 180000
)

// limits are the settings that decide when a slot is lost, in bytes. A keep of
// less than zero is no limit.
type limits struct{ keep, walSize int64 }

func (p *patient) limits(ctx context.Context) (l limits, err error) {
	err = p.conn.QueryRow(ctx, `
		select (select setting::bigint from pg_settings where name = 'max_slot_wal_keep_size'),
			(select setting::bigint from pg_settings where name = 'max_wal_size')`).Scan(&l.keep, &l.walSize)
	l.walSize *= mebibyte
	if l.keep >= 0 {
		l.keep *= mebibyte
	}
	return l, err
}

// keepLimit looks for a limit of what slots keep: none fills the disk when a
// reader is gone, a small one loses the slot between two checkpoints.
func keepLimit(ctx context.Context, p *patient) (finding, error) {
	l, err := p.limits(ctx)
	if err != nil {
		return finding{}, err
	}
	wanted := max(suggestedKeep, 2*l.walSize)
	f := finding{
		status: Warn,
		remedy: "set max_slot_wal_keep_size to a quarter or half of the disk of the WAL, " + p.administrator() + "; no restart. It holds for every " +
			"slot of the server: one that keeps more is lost at the next checkpoint",
		sql: p.setting("max_slot_wal_keep_size", fmt.Sprintf("%dMB", wanted/mebibyte), true),
	}
	switch {
	case l.keep < 0:
		f.observed = "no limit"
		f.message = "nothing keeps a slot that is not read from filling the disk of the server"
	case l.keep < 2*l.walSize:
		f.observed = fmt.Sprintf("%s, max_wal_size is %s", size(l.keep), size(l.walSize))
		f.message = "the limit is below twice max_wal_size: busy minutes can lose the slot"
	default:
		return pass(size(l.keep)), nil
	}
	return f, nil
}

// idleLimit looks whether a relay that is down for a while loses its slot.
func idleLimit(ctx context.Context, p *patient) (finding, error) {
	if p.version < idleSince {
		return pass("this server drops no idle slots"), nil
	}
	var seconds int64
	err := p.conn.QueryRow(ctx, `
		select extract(epoch from current_setting('idle_replication_slot_timeout')::interval)::bigint`).Scan(&seconds)
	limit := time.Duration(seconds) * time.Second
	switch {
	case err != nil:
		return finding{}, err
	case limit == 0:
		return pass("none"), nil
	case limit >= shortIdle:
		return pass(limit.String()), nil
	}
	return finding{
		status: Warn, observed: limit.String(),
		message: fmt.Sprintf("a relay that is down for %v loses its slot", limit),
		remedy:  "set idle_replication_slot_timeout to two days, " + p.administrator() + ", or to 0; no restart",
		sql:     p.setting("idle_replication_slot_timeout", "2d", true),
	}, nil
}

// slotRisk looks how near the slot is to being lost.
func slotRisk(ctx context.Context, p *patient) (finding, error) {
	if p.slot == nil {
		return skip("there is no slot yet"), nil
	}
	l, err := p.limits(ctx)
	if err != nil {
		return finding{}, err
	}
	f := p.risk(l)
	if f.status == Pass {
		return f, nil
	}
	k, err := p.keeper(ctx)
	if err != nil {
		return finding{}, err
	}
	f.message += ": " + k.why
	f.remedy = k.remedy + "; " + f.remedy
	return f, nil
}

// risk judges the slot by what the server says of it.
func (p *patient) risk(l limits) finding {
	f := finding{
		observed: "wal_status " + p.slot.walStatus,
		remedy:   "raise max_slot_wal_keep_size meanwhile, " + p.administrator() + ", if the disk has room: no restart",
	}
	if l.keep >= 0 {
		f.sql = p.setting("max_slot_wal_keep_size", fmt.Sprintf("%dMB", max(suggestedKeep, 2*l.keep)/mebibyte), true)
	}
	switch p.slot.walStatus {
	case "extended":
		f.status = Warn
		f.message = "slot " + ident(p.cfg.Slot) + " keeps more WAL than max_wal_size"
	case "unreserved":
		f.status = Fail
		f.message = "slot " + ident(p.cfg.Slot) + " will be lost at the next checkpoint"
	default:
		return pass(f.observed)
	}
	return f
}

// keptWAL looks how much WAL the slot keeps.
func keptWAL(ctx context.Context, p *patient) (finding, error) {
	if p.slot == nil {
		return skip("there is no slot yet"), nil
	}
	l, err := p.limits(ctx)
	if err != nil {
		return finding{}, err
	}
	var kept int64
	err = p.conn.QueryRow(ctx, `
		select coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint from pg_replication_slots where slot_name = $1`,
		p.cfg.Slot).Scan(&kept)
	if err != nil {
		return finding{}, err
	}
	f := p.keeps(kept, l)
	if f.status == Pass {
		return f, nil
	}
	k, err := p.keeper(ctx)
	if err != nil {
		return finding{}, err
	}
	f.message += ": " + k.why
	f.remedy, f.sql = k.remedy, k.sql
	return f, nil
}

func (p *patient) keeps(kept int64, l limits) finding {
	f := finding{
		status: Warn, observed: size(kept),
		message: "slot " + ident(p.cfg.Slot) + " keeps " + size(kept) + " of WAL",
		remedy:  "find what it is kept for",
	}
	switch {
	case l.keep >= 0 && kept > l.keep/2:
		f.observed += " of " + size(l.keep)
		f.message += ", more than half of what makes the server give the slot up"
	case kept <= muchWAL:
		return pass(f.observed)
	}
	return f
}
