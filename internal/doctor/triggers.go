package doctor

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// guard is a trigger that the migration makes.
type guard struct {
	trigger, table, when, function string
	// message says what is wrong without it.
	message string
}

var guards = []guard{
	{
		"messages_never_updated", "messages", "before update", "refuse_update",
		"nothing refuses to change a message, whose key stands for bytes that the queue may have already",
	},
	{
		"queues_note_pause", "queues", "before insert or update", "note_pause",
		"nobody notes who pauses a queue, and when",
	},
}

// sqlTriggers finds triggers that fire for outcomes.
const sqlTriggers = `
	select c.relname::text, t.tgname::text
	from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace
	where n.nspname = $1 and not t.tgisinternal and t.tgenabled <> 'D'
		and c.relname in ('dispatched', 'deferred', 'dead_letters', 'withdrawn', 'relays', 'envelopes')
	order by c.relname, t.tgname`

// triggers looks for triggers that a relay fires with each outcome, and for those
// of the migration. What an application fires by its inserts is its own business.
func triggers(ctx context.Context, p *patient) (finding, error) {
	if f, err := p.unguarded(ctx); f.status != "" || err != nil {
		return f, err
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
		return pass("messages cannot be changed, pauses are noted, outcomes fire none"), err
	}
	return finding{
		status: Warn, observed: strings.Join(names, ", "),
		message: "triggers run with every outcome: they slow the relay down, and an error in one stops it",
		remedy: "ask the owner of each before you disable it: what it does stops with it, and what it would have written from then on is lost; " +
			"`enable trigger` in the place of `disable trigger` starts it again. If it waits for a lock, end the session that has the lock instead (D33). " +
			"If nobody needs it, as the owner of the tables; outcomes can be read from their tables",
		// Never safe: somebody may rely on what the trigger writes.
		sql: script(list...),
	}, nil
}

// sqlGuard is empty for a trigger that is not there.
const sqlGuard = `
	select coalesce((select t.tgenabled::text from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = $1 and c.relname = $2 and t.tgname = $3), '')`

// unguarded looks for triggers of the migration that are gone or disabled; the
// finding is empty if all are at work.
func (p *patient) unguarded(ctx context.Context) (finding, error) {
	var observed, messages, list []string
	for _, g := range guards {
		var state string
		if err := p.conn.QueryRow(ctx, sqlGuard, p.cfg.Schema, g.table, g.trigger).Scan(&state); err != nil {
			return finding{}, err
		}
		switch state {
		case "":
			observed = append(observed, g.trigger+" does not exist")
			list = append(list, "create trigger "+g.trigger+" "+g.when+" on "+p.table(g.table)+
				" for each row execute function "+p.table(g.function)+"()")
		case "D":
			observed = append(observed, g.trigger+" is disabled")
			list = append(list, "alter table "+p.table(g.table)+" enable trigger "+g.trigger)
		default:
			continue
		}
		messages = append(messages, g.message)
	}
	if len(list) == 0 {
		return finding{}, nil
	}
	return finding{
		status: Warn, observed: strings.Join(observed, ", "), message: strings.Join(messages, "; "),
		remedy: "as the owner of the table", sql: script(list...), safe: true,
	}, nil
}
