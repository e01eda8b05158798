package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// vacuum looks for tables of the outbox with many dead rows, as the statistics
// know them.
func vacuum(ctx context.Context, p *patient) (finding, error) {
	rows, err := p.conn.Query(ctx, `
		select relname::text, n_dead_tup, coalesce(to_char(greatest(last_vacuum, last_autovacuum), 'YYYY-MM-DD HH24:MI'), 'never')
		from pg_stat_user_tables
		where schemaname = $1 and n_dead_tup > $2 and n_dead_tup > 0.2 * (n_live_tup + n_dead_tup) order by relname`, p.cfg.Schema, manyDead)
	if err != nil {
		return finding{}, err
	}
	var names, list []string
	var table, last string
	var dead int64
	_, err = pgx.ForEachRow(rows, []any{&table, &dead, &last}, func() error {
		names = append(names, fmt.Sprintf("%s: %d, last vacuum %s", table, dead, last))
		list = append(list, "vacuum (analyze) "+p.table(table))
		return nil
	})
	if err != nil || len(names) == 0 {
		return pass("yes"), err
	}
	who, err := p.heldBack(ctx)
	if err != nil {
		return finding{}, err
	}
	return finding{
		status: Warn, observed: "dead rows of " + strings.Join(names, "; "),
		message: "vacuum does not keep up: the tables grow, and looking rows up takes longer" + who,
		remedy:  "mend what holds it back (D33, D34, D41), then run it, as the owner of the tables",
		sql:     script(list...), safe: true,
	}, nil
}

// sqlStorage finds tables whose options are not what the migration set.
const sqlStorage = `
	select c.relname::text,
		exists (select from pg_options_to_table(c.reloptions) where option_name = 'autovacuum_enabled' and not option_value::bool),
		not exists (select from pg_options_to_table(c.reloptions) where option_name = 'vacuum_truncate' and not option_value::bool)
	from pg_class c join pg_namespace n on n.oid = c.relnamespace
	where n.nspname = $1 and c.relkind = 'r' and c.relname in ('messages', 'dispatched', 'deferred', 'claims')
	order by c.relname`

// storage looks for tables without autovacuum, which grow for ever, and for those
// whose vacuum locks them to cut them shorter.
func storage(ctx context.Context, p *patient) (finding, error) {
	rows, err := p.conn.Query(ctx, sqlStorage, p.cfg.Schema)
	if err != nil {
		return finding{}, err
	}
	var names, list []string
	var table string
	var neglected, truncated bool
	_, err = pgx.ForEachRow(rows, []any{&table, &neglected, &truncated}, func() error {
		if neglected {
			names = append(names, table+" has autovacuum off")
			list = append(list, "alter table "+p.table(table)+" reset (autovacuum_enabled)")
		}
		if truncated {
			names = append(names, table+" lacks vacuum_truncate = off")
			list = append(list, "alter table "+p.table(table)+" set (vacuum_truncate = off)")
		}
		return nil
	})
	if err != nil || len(names) == 0 {
		return pass("as the migration set them"), err
	}
	return finding{
		status: Warn, observed: strings.Join(names, ", "),
		message: "tables of the outbox are not looked after as they should: they grow, or a vacuum stops everybody for a moment",
		remedy:  "as the owner of the tables",
		sql:     script(list...), safe: true,
	}, nil
}
