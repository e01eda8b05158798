package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/plural"
)

// sqlOthers finds the tables of the publication that are neither the messages
// nor a partition of them, and that can be taken out one by one.
const sqlOthers = `
	select format('%I.%I', n.nspname, c.relname)
	from pg_publication_rel r join pg_publication p on p.oid = r.prpubid
	join pg_class c on c.oid = r.prrelid join pg_namespace n on n.oid = c.relnamespace,
	(select m.oid from pg_class m join pg_namespace s on s.oid = m.relnamespace where s.nspname = $2 and m.relname = 'messages') m
	where p.pubname = $1 and c.oid <> m.oid and c.oid not in (select relid from pg_partition_tree(m.oid))
		and m.oid not in (select relid from pg_partition_tree(c.oid))
	order by 1`

// others looks for tables whose rows are streamed to the relay for nothing.
func others(ctx context.Context, p *patient) (finding, error) {
	rows, err := p.conn.Query(ctx, sqlOthers, p.cfg.Publication, p.cfg.Schema)
	if err != nil {
		return finding{}, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) == 0 {
		return pass("nothing"), err
	}
	return finding{
		status: Warn, observed: strings.Join(tables, ", "),
		message: fmt.Sprintf("publication %s has %s besides the messages: every insert into it is decoded and sent for nothing",
			ident(p.cfg.Publication), plural.Of(len(tables), "table", "tables")),
		remedy: "as the owner of the publication, if nobody else subscribes to it",
		sql:    script("alter publication " + ident(p.cfg.Publication) + " drop table " + strings.Join(tables, ", ")),
	}, nil
}
