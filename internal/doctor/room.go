package doctor

import (
	"context"
	"fmt"
)

// slotRoom looks for free slots: one for ours, and one for a tool that makes
// another for a while, such as an upgrade.
func slotRoom(ctx context.Context, p *patient) (finding, error) {
	var limit, used int
	var ours bool
	var unread string
	err := p.conn.QueryRow(ctx, `
		select current_setting('max_replication_slots')::int, count(*)::int, coalesce(bool_or(slot_name = $1), false),
			coalesce(string_agg(quote_ident(slot_name), ', ' order by restart_lsn nulls last) filter (where not active and slot_name <> $1), '')
		from pg_replication_slots`, p.cfg.Slot).Scan(&limit, &used, &ours, &unread)
	if err != nil {
		return finding{}, err
	}
	free := limit - used
	f := finding{
		status: Warn, observed: fmt.Sprintf("%d of %d slots are used", used, limit),
		message: "there is no slot left for an upgrade or a second relay",
		remedy:  "drop slots that nobody needs, or raise max_replication_slots, " + p.administrator() + ", and restart the server",
		sql:     p.setting("max_replication_slots", limit+moreRoom, false),
	}
	switch {
	case !ours && free < 1:
		f.status, f.message = Fail, "there is no slot left for the relay"
	case !ours && free >= 2, ours && free >= 1:
		return pass(f.observed), nil
	}
	if unread != "" {
		f.observed += ", nobody reads: " + unread
	}
	return f, nil
}

// moreRoom is by how much a full server is made larger.
const moreRoom = 4

// senderRoom looks for free walsenders. One that is taken over needs a moment in
// which two of ours are connected. That of the doctor, which may not have ended yet,
// does not count.
func senderRoom(ctx context.Context, p *patient) (finding, error) {
	var limit, used int
	var ours bool
	err := p.conn.QueryRow(ctx, `
		select current_setting('max_wal_senders')::int, count(*)::int,
			exists (select from pg_replication_slots where slot_name = $1 and active)
		from pg_stat_replication where application_name is distinct from 'outbox-relay doctor'`, p.cfg.Slot).Scan(&limit, &used, &ours)
	if err != nil {
		return finding{}, err
	}
	if free := limit - used; free >= 2 || ours && free >= 1 {
		return pass(fmt.Sprintf("%d of %d walsenders are used", used, limit)), nil
	}
	return finding{
		status: Warn, observed: fmt.Sprintf("%d of %d walsenders are used", used, limit),
		message: "there is no walsender left for a second relay or a backup",
		remedy:  "raise max_wal_senders, " + p.administrator() + ", and restart the server",
		sql:     p.setting("max_wal_senders", limit+moreRoom, false),
	}, nil
}

// setting is the statement that changes a setting of the server. At a service it
// is a parameter there. One that needs no restart is loaded.
func (p *patient) setting(name string, value any, loads bool) statements {
	if p.vendor.name != "" {
		return nil
	}
	list := script(fmt.Sprintf("alter system set %s = %s", name, literal(fmt.Sprint(value))))
	if loads {
		list = append(list, "select pg_reload_conf()")
	}
	return list
}
