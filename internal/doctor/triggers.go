package doctor

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// guard is the trigger with which the migration keeps messages as they are.
const guard = "messages_never_updated"

// sqlTriggers finds triggers that fire for outcomes.
const sqlTriggers = `
	select c.relname::text, t.tgname::text
	from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace
	where n.nspname = $1 and not t.tgisinternal and t.tgenabled <> 'D'
		and c.relname in ('dispatched', 'deferred', 'dead_letters', 'withdrawn', 'relays', 'envelopes')
	order by c.relname, t.tgname`

// triggers looks for triggers that a relay fires with each outcome, and for the
// one that refuses to change a message. Those that an application fires by its
// inserts are its own business.
func triggers(ctx context.Context, p *patient) (finding, error) {
	var state string
	err := p.conn.QueryRow(ctx, `
		select coalesce((select t.tgenabled::text from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace
			where n.nspname = $1 and c.relname = 'messages' and t.tgname = $2), '')`, p.cfg.Schema, guard).Scan(&state)
	switch {
	case err != nil:
		return finding{}, err
	case state == "" || state == "D":
		return p.unguarded(state), nil
	}
	rows, err := p.conn.Query(ctx, sqlTriggers, p.cfg.Schema)
	if err != nil {
		return finding{}, err
	}
	var names, list []string
	var table, trigger string
	_, err = pgx.ForEachRow(rows, []any{&table, &trigger}, func() error {
		names = append(names, table+"."+trigger)
		list = append(list, "alter table "+p.table(table)+" disable trigger "+ident(trigger))
		return nil
	})
	if err != nil || len(names) == 0 {
		return pass("messages cannot be changed, outcomes fire none"), err
	}
	return finding{
		status: Warn, observed: strings.Join(names, ", "),
		message: "triggers run with every outcome: they slow the relay down, and an error in one stops it",
		remedy:  "as the owner of the tables, if nobody needs them; read the outcomes from their tables instead",
		sql:     script(list...),
	}, nil
}

// unguarded is a table whose messages can be changed after they were sent.
func (p *patient) unguarded(state string) finding {
	f := finding{
		status: Warn, observed: guard + " does not exist",
		message: "nothing refuses to change a message, whose key stands for bytes that the queue may have already",
		remedy:  "as the owner of the table",
		sql: script("create trigger " + guard + " before update on " + p.table("messages") +
			" for each row execute function " + p.table("refuse_update") + "()"),
		safe: true,
	}
	if state == "D" {
		f.observed = guard + " is disabled"
		f.sql = script("alter table " + p.table("messages") + " enable trigger " + guard)
	}
	return f
}
