package doctor

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// failoverSince is the first version in which logical slots can follow a
// failover.
const failoverSince = 170000

// failover looks, where there is a standby, whether it gets the slot, and whether
// a message may go out before the standby has its transaction.
func failover(ctx context.Context, p *patient) (finding, error) {
	switch {
	case p.slot == nil:
		return skip("there is no slot yet"), nil
	case p.version < failoverSince:
		return pass("slots of this server follow no failover: the relay makes a new one then, and finds the messages in the table"), nil
	}
	var follows bool
	var waitsFor string
	var standbys []string
	err := p.conn.QueryRow(ctx, `
		select coalesce((to_jsonb(s) ->> 'failover')::bool, false), coalesce(current_setting('synchronized_standby_slots', true), ''),
			array(select slot_name::text from pg_replication_slots where slot_type = 'physical' and active order by slot_name)
		from pg_replication_slots s where slot_name = $1`, p.cfg.Slot).Scan(&follows, &waitsFor, &standbys)
	switch {
	case err != nil:
		return finding{}, err
	case len(standbys) == 0:
		return pass("no standby is connected by a slot"), nil
	case !follows:
		return finding{
			status: Warn, observed: "made without failover, standbys: " + strings.Join(standbys, ", "),
			message: "a standby does not get slot " + ident(p.cfg.Slot) + ": after a failover the relay makes a new one, and repeats or takes " +
				"from the table what it cannot tell apart",
			remedy: "stop the relay and run `outbox-relay slot recreate --yes`, which makes the slot for failover",
			sql:    script(p.remakeSlot()...),
		}, nil
	case strings.TrimSpace(waitsFor) == "":
		return finding{
			status: Warn, observed: "synchronized_standby_slots is empty, standbys: " + strings.Join(standbys, ", "),
			message: "a message can go out whose transaction is lost in a failover: the slot does not wait for the standby",
			remedy:  "name the slots of the standbys that may be promoted, " + p.administrator() + "; delivery stops while one of them is down. No restart",
			sql:     p.setting("synchronized_standby_slots", strings.Join(standbys, ", "), true),
		}, nil
	}
	return pass("follows a failover, waits for " + waitsFor), nil
}

// sqlGate splits the names that slots for failover wait for.
const sqlGate = `
	select btrim(name), exists (select from pg_replication_slots r where r.slot_name = btrim(name) and r.active)
	from unnest(string_to_array(coalesce(current_setting('synchronized_standby_slots', true), ''), ',')) with ordinality s (name, n)
	where btrim(name) <> '' order by n`

// standbyGate looks for standbys that are waited for and not connected: the
// server sends nothing then, and says so only in its log.
func standbyGate(ctx context.Context, p *patient) (finding, error) {
	rows, err := p.conn.Query(ctx, sqlGate)
	if err != nil {
		return finding{}, err
	}
	var gone, here []string
	var name string
	var connected bool
	_, err = pgx.ForEachRow(rows, []any{&name, &connected}, func() error {
		if connected {
			here = append(here, name)
		} else {
			gone = append(gone, name)
		}
		return nil
	})
	if err != nil || len(gone) == 0 {
		return pass("none"), err
	}
	return finding{
		status: Fail, observed: "not connected: " + strings.Join(gone, ", "),
		message: "delivery waits for standby slot " + strings.Join(gone, ", ") + ", which is not connected: the server sends the relay nothing",
		remedy: "bring the standby back; or, if it is gone for good, take it out of synchronized_standby_slots, " + p.administrator() + ". " +
			"No restart",
		sql: p.setting("synchronized_standby_slots", strings.Join(here, ", "), true),
	}, nil
}
