package doctor

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// sqlKeys are the unique keys that the relay and its users count on, each with
// whether a valid index serves it.
const sqlKeys = `
select k.relation, k.attribute from (values
	('messages', 'id'), ('messages', 'key'), ('dispatched', 'message_id'), ('deferred', 'message_id'),
	('dead_letters', 'message_id'), ('withdrawn', 'message_id'), ('relays', 'slot')) k (relation, attribute)
join pg_class c on c.relname = k.relation
join pg_namespace n on n.oid = c.relnamespace and n.nspname = $1
where not exists (
	select from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
	where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indpred is null and i.indnkeyatts = 1 and a.attname = k.attribute)
order by k.relation, k.attribute`

// keys looks for the unique keys. Without that of messages.key two messages with
// one key can be committed, and the queue drops the second as a repeat; without
// the others, looking up an outcome reads whole tables.
func keys(ctx context.Context, p *patient) (finding, error) {
	rows, err := p.conn.Query(ctx, sqlKeys, p.cfg.Schema)
	if err != nil {
		return finding{}, err
	}
	var names, list []string
	var table, column string
	_, err = pgx.ForEachRow(rows, []any{&table, &column}, func() error {
		names = append(names, table+" ("+column+")")
		list = append(list, "create unique index concurrently on "+p.table(table)+" ("+ident(column)+")")
		return nil
	})
	if err != nil {
		return finding{}, err
	}
	if len(names) == 0 {
		return pass("each has a valid index"), nil
	}
	return finding{
		status: Fail, observed: "missing: " + strings.Join(names, ", "),
		message: "unique keys are missing: " + strings.Join(names, ", "),
		remedy: "as the owner of the tables, each statement by itself; drop an index that is not valid before, and of two messages with one key " +
			"the queue takes the second for a repeat of the first",
		sql: script(list...), safe: true,
	}, nil
}
