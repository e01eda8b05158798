package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/status"
)

// mostIdle is longer than any restart or takeover.
const mostIdle = 10 * time.Minute

// slotReader looks who reads the slot, and since when nobody does. A relay at
// work writes its row at least once a minute.
func slotReader(ctx context.Context, p *patient) (finding, error) {
	if p.slot == nil {
		return skip("there is no slot yet"), nil
	}
	var idle float64
	var holder string
	err := p.conn.QueryRow(ctx, p.in(`
		select extract(epoch from now() - updated_at)::float8, coalesce(holder, 'a relay') from outbox.relays
		where slot = $1 and reconciled_at is not null`), p.cfg.Slot).Scan(&idle, &holder)
	age := time.Duration(idle * float64(time.Second)).Round(time.Second)
	switch {
	case p.slot.active:
		return p.readBy(ctx)
	case errors.Is(err, pgx.ErrNoRows):
		return pass("no relay has used it yet"), nil
	case err != nil:
		return finding{}, err
	case age <= mostIdle:
		return pass(fmt.Sprintf("not in use; %s was at work %v ago", holder, age)), nil
	}
	return finding{
		status: Warn, observed: fmt.Sprintf("not in use; %s was at work %v ago", holder, age),
		message: "nobody reads slot " + ident(p.cfg.Slot) + ": no message goes out, and the server keeps WAL",
		remedy:  "start the relay; if there is to be none any more, `outbox-relay slot drop`",
	}, nil
}

// readBy says who reads the slot, and whether the server still hears from it. Where
// a session comes from is for those to see who may see the sessions of others.
func (p *patient) readBy(ctx context.Context) (finding, error) {
	var reader string
	var heard *float64
	err := p.conn.QueryRow(ctx, `
		select format('in use by pid %s', s.active_pid) || coalesce(', ' || nullif(a.application_name, ''), '')
			|| coalesce(', from ' || host(a.client_addr), ''), extract(epoch from clock_timestamp() - r.reply_time)::float8
		from pg_replication_slots s left join pg_stat_activity a on a.pid = s.active_pid
			left join pg_stat_replication r on r.pid = s.active_pid
		where s.slot_name = $1 and s.active_pid is not null`, p.cfg.Slot).Scan(&reader, &heard)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // it was let go just now
		return pass("in use"), nil
	case err != nil:
		return finding{}, err
	case heard != nil && *heard >= status.Silent.Seconds():
		return p.silent(reader, time.Duration(*heard*float64(time.Second)).Round(time.Second)), nil
	}
	return pass(reader), nil
}

// silent is about a relay that has the slot and does not say a word: it hangs, or
// its host is gone, and the server has not noticed.
func (p *patient) silent(reader string, since time.Duration) finding {
	f := finding{
		status: Warn, observed: fmt.Sprintf("%s; the server has heard nothing from it for %v", reader, since),
		message: "slot " + ident(p.cfg.Slot) + " is kept for a relay that does not say a word: if it hangs or its host is gone, no message goes out, and " +
			"no other relay takes over",
		remedy: "end that relay, or its session on the server, as the same role or an administrator: another relay takes over at once. If messages go " +
			"out, the clocks differ (D47)",
		sql: script(fmt.Sprintf("select pg_terminate_backend(%d)", p.slot.pid)),
	}
	if p.cfg.SenderTimeout > usualSilence {
		f.remedy += fmt.Sprintf(". The server waits so long because RELAY_WAL_SENDER_TIMEOUT is %v: its default is %v", p.cfg.SenderTimeout, usualSilence)
	}
	return f
}

// slotPosition looks whether somebody moved the slot after the last relay ended
// in good order. A relay that crashed may have left it a little further than it
// wrote down.
func slotPosition(ctx context.Context, p *patient) (finding, error) {
	if p.slot == nil {
		return skip("there is no slot yet"), nil
	}
	var ahead int64
	var closed bool
	err := p.conn.QueryRow(ctx, p.in(`
		select pg_wal_lsn_diff(s.confirmed_flush_lsn, r.confirmed_lsn)::bigint, r.closed_at is not null
		from outbox.relays r join pg_replication_slots s on s.slot_name = r.slot
		where r.slot = $1 and r.confirmed_lsn is not null and s.confirmed_flush_lsn is not null and s.database = current_database()`),
		p.cfg.Slot).Scan(&ahead, &closed)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return pass("no relay has noted one"), nil
	case err != nil:
		return finding{}, err
	case p.slot.active:
		return pass("in use"), nil
	case ahead < 0:
		return pass(fmt.Sprintf("%d bytes behind the last relay: it repeats what it has sent there, with the same keys", -ahead)), nil
	case ahead == 0 || !closed:
		return pass(fmt.Sprintf("%d bytes ahead of what the last relay noted", ahead)), nil
	}
	return finding{
		status: Warn, observed: fmt.Sprintf("%d bytes ahead of where the last relay left it", ahead),
		message: "somebody moved slot " + ident(p.cfg.Slot) + " forward: the stream does not show the messages in between",
		remedy:  "start the relay: it sees that, and takes these messages from the table",
	}, nil
}
