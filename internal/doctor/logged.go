package doctor

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// logged looks for tables whose changes do not reach the WAL: messages are not
// streamed from them, and after a crash they are empty.
func logged(ctx context.Context, p *patient) (finding, error) {
	rows, err := p.conn.Query(ctx, `
		select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = $1 and c.relkind = 'r' and c.relpersistence = 'u' order by c.relname`, p.cfg.Schema)
	if err != nil {
		return finding{}, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) == 0 {
		return pass("all"), err
	}
	var names, list []string
	for _, table := range tables {
		names = append(names, p.table(table))
		list = append(list, "alter table "+p.table(table)+" set logged")
	}
	return finding{
		status: Fail, observed: "unlogged: " + strings.Join(names, ", "),
		message: "unlogged tables are empty after a crash, and no message of theirs reaches the stream",
		remedy:  "as the owner of the tables; each is locked while it is written anew",
		sql:     script(list...),
	}, nil
}
