package doctor

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// published is how the table of messages stands in the publication.
type published struct {
	listed    bool // itself, or a partition of it
	partition bool // as its partitions, under their names
	filter    string
	leftOut   []string // needed columns that are not published
	child     []string // schema and name of a table that inherits from it
	payload   string   // the type of the payload
}

// selectPublished reads row filters and column lists, which older servers lack,
// through JSON.
const selectPublished = `
	select exists (
			select from pg_publication_tables t
			join pg_namespace n on n.nspname = t.schemaname
			join pg_class p on p.relnamespace = n.oid and p.relname = t.tablename
			where t.pubname = $1 and (p.oid = c.oid or p.oid in (select relid from pg_partition_tree(c.oid)))),
		c.relkind = 'p' and not coalesce((select pubviaroot from pg_publication where pubname = $1), false),
		coalesce((select to_jsonb(t) ->> 'rowfilter' from pg_publication_tables t
			where t.pubname = $1 and t.schemaname = $2 and t.tablename = 'messages'), ''),
		array(select a.attname::text from pg_publication_tables t, pg_attribute a
			where t.pubname = $1 and t.schemaname = $2 and t.tablename = 'messages'
				and a.attrelid = c.oid and a.attname in ('id', 'key', 'queue', 'ordering_key', 'payload') and not a.attisdropped
				and not to_jsonb(t) -> 'attnames' @> to_jsonb(a.attname::text)
			order by a.attnum),
		(select array[kn.nspname::text, k.relname::text]
			from pg_inherits i join pg_class k on k.oid = i.inhrelid join pg_namespace kn on kn.oid = k.relnamespace
			where i.inhparent = c.oid and c.relkind = 'r' order by k.oid limit 1),
		coalesce((select coalesce(base.typname, t.typname)::text
			from pg_attribute a join pg_type t on t.oid = a.atttypid left join pg_type base on base.oid = t.typbasetype
			where a.attrelid = c.oid and a.attname = 'payload' and not a.attisdropped), '')
	from pg_class c join pg_namespace n on n.oid = c.relnamespace
	where n.nspname = $2 and c.relname = 'messages'`

// membership looks whether everything that is written into the table of messages
// comes as a message.
func membership(ctx context.Context, p *patient) (finding, error) {
	var t published
	err := p.conn.QueryRow(ctx, selectPublished, p.cfg.Publication, p.cfg.Schema).Scan(
		&t.listed, &t.partition, &t.filter, &t.leftOut, &t.child, &t.payload)
	if err != nil {
		return finding{}, err
	}
	table, name := p.table("messages"), ident(p.cfg.Publication)
	const restart = "then restart the relay, which takes the messages that were written meanwhile from the table"
	f := finding{status: Fail, remedy: "as the owner of publication and table"}
	switch {
	case !t.listed:
		f.observed = table + " is not in " + name
		f.message = "publication " + name + " does not contain " + table + ": no message reaches the relay, and from Postgres 18 on without an error"
		f.remedy += "; " + restart
		f.sql, f.safe = script("alter publication "+name+" add table "+table, p.reconcile()), true
	case t.partition:
		f.observed = "only the partitions of " + table + " are in " + name
		f.message = "publication " + name + " shows the partitions under their own names: no message reaches the relay"
		f.remedy += "; " + restart
		f.sql, f.safe = script("alter publication "+name+" set (publish_via_partition_root = true)", p.reconcile()), true
	case len(t.child) > 0:
		child := pgx.Identifier(t.child).Sanitize()
		f.observed = child + " inherits from " + table
		f.message = "table " + child + " inherits from " + table + ": the stream does not show its rows as messages, and nothing keeps their numbers apart"
		f.remedy += "; insert its rows into " + table + " first, if they have not been sent"
		f.sql = script("alter table " + child + " no inherit " + table)
	case t.payload != "" && t.payload != "jsonb" && t.payload != "json" && t.payload != "text" && t.payload != "varchar":
		f.observed = "payload of " + table + " has type " + t.payload
		f.message = "column payload of " + table + " has type " + t.payload + ", which is not sent: every message becomes a dead letter"
		f.remedy = "give the column the type jsonb again, and redrive the dead letters"
	case len(t.leftOut) > 0:
		f.observed = name + " leaves out " + strings.Join(t.leftOut, ", ")
		f.message = "publication " + name + " leaves out columns of " + table + " that the relay needs: the stream ends at the first message without them"
		f.remedy += "; what was written meanwhile stays in the WAL as it is, so run `outbox-relay slot recreate --yes` then: " +
			"nothing is lost, the relay takes the messages from the table"
		f.sql = script("alter publication " + name + " set table " + table)
	case t.filter != "":
		f.status, f.observed = Warn, name+" has a row filter: "+t.filter
		f.message = "publication " + name + " has a row filter: the relay finds the other messages in the table only, some time later and out of order"
		f.sql = script("alter publication " + name + " set table " + table)
	default:
		return pass(table + " is in publication " + name), nil
	}
	return f, nil
}
