package doctor

import (
	"context"
	"fmt"
	"time"
)

// keeper is what makes the server keep the WAL of a slot, and what to do about it.
type keeper struct {
	why, remedy string
	sql         statements
}

// holdsMoment is how long a transaction is open at least that is called what the
// server keeps WAL for.
const holdsMoment = 10 * time.Second

// keeper looks why the server keeps so much for the slot. A relay that streams
// confirms what it has; behind that the server keeps what transactions have
// written that are still open, and moves on a while after they have ended.
func (p *patient) keeper(ctx context.Context) (keeper, error) {
	if !p.slot.active {
		return keeper{"nobody reads it", "start the relay, or see why it does not stream (D12)", nil}, nil
	}
	var unconfirmed, kept int64
	err := p.conn.QueryRow(ctx, `
		select coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn), 0)::bigint,
			coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint
		from pg_replication_slots where slot_name = $1`, p.cfg.Slot).Scan(&unconfirmed, &kept)
	if err != nil {
		return keeper{}, err
	}
	if unconfirmed > kept/2 {
		return keeper{
			"the relay reads it and has not confirmed " + size(unconfirmed),
			"see what the relay waits for: `outbox-relay status`, and its log", nil,
		}, nil
	}
	return p.openWriter(ctx)
}

// openWriter is about a relay that has confirmed nearly everything.
func (p *patient) openWriter(ctx context.Context) (keeper, error) {
	k := keeper{why: "the relay reads it and has confirmed all but a little: what is kept is for a transaction that is open"}
	sees, err := p.seesSessions(ctx)
	if err != nil {
		return keeper{}, err
	}
	if !sees {
		k.remedy = "look for it as a role with pg_read_all_stats: `select pid, usename, application_name, state, xact_start, query " +
			"from pg_stat_activity where backend_xid is not null order by xact_start`, and `select * from pg_prepared_xacts`; its owner ends it"
		return k, nil
	}
	writers, err := p.writersOpen(ctx, min(holdsMoment, p.long))
	if err != nil {
		return keeper{}, err
	}
	if len(writers) == 0 {
		k.why = "the relay reads it and has confirmed all but a little: the server lets the rest go within a minute"
		k.remedy = "look again in a minute"
		return k, nil
	}
	oldest := writers[0]
	k.why += fmt.Sprintf(": %s, open for %v", oldest.name, oldest.open.Round(time.Second))
	k.remedy = "its owner ends it, or an administrator does; what the slot keeps falls within half a minute after that. A restart of the relay, or a " +
		"new slot, changes nothing"
	k.sql = oldest.end
	if k.sql == nil {
		k.remedy = "it ends in a session of its own database, with commit prepared or rollback prepared: only its owner knows which is right; what the slot " +
			"keeps falls within half a minute after that. A restart of the relay, or a new slot, changes nothing"
	}
	return k, nil
}
