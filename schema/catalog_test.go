package schema_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// catalog describes everything in a schema and every publication, one line
// each, as the server's catalogs have it. Two schemas with the same lines are
// the same.
func catalog(t *testing.T, conn *pgx.Conn, schema string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), catalogSQL, schema)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) < 100 {
		t.Fatalf("the catalog of %s has only %d lines", schema, len(lines))
	}
	return lines
}

const catalogSQL = `
with s as (select oid, nspname, nspacl from pg_namespace where nspname = $1),
	r as (select c.* from pg_class c join s on c.relnamespace = s.oid)
select line from (
	select format('schema %s %s', nspname, coalesce(nspacl::text, '')) as line from s
	union all
	select format('relation %s kind %s owner %s options %s acl %s persistence %s toast %s', relname, relkind,
		pg_get_userbyid(relowner), reloptions, relacl, relpersistence,
		(select reloptions from pg_class toast where toast.oid = r.reltoastrelid)) from r
	union all
	select format('column %s.%s %s %s not null %s identity %s default %s', r.relname, attnum, attname,
		format_type(atttypid, atttypmod), attnotnull, attidentity, pg_get_expr(adbin, adrelid))
	from r join pg_attribute a on a.attrelid = r.oid left join pg_attrdef on adrelid = attrelid and adnum = attnum
	where attnum > 0
	union all
	select format('constraint %s.%s %s', r.relname, conname, pg_get_constraintdef(c.oid))
	from r join pg_constraint c on c.conrelid = r.oid
	union all
	select format('index %s', pg_get_indexdef(r.oid)) from r where relkind = 'i'
	union all
	select format('view %s %s', relname, pg_get_viewdef(oid)) from r where relkind = 'v'
	union all
	select format('trigger %s', pg_get_triggerdef(tg.oid)) from r join pg_trigger tg on tg.tgrelid = r.oid
	union all
	select format('function %s owner %s acl %s', pg_get_functiondef(p.oid), pg_get_userbyid(proowner), proacl)
	from pg_proc p join s on p.pronamespace = s.oid
	union all
	select format('comment %s.%s %s', d.objoid::regclass, objsubid, description)
	from r join pg_description d on d.objoid = r.oid
	union all
	select format('comment %s', obj_description(oid)) from s
	union all
	select format('publication %s inserts %s updates %s deletes %s truncates %s all %s root %s', pubname, pubinsert, pubupdate,
		pubdelete, pubtruncate, puballtables, pubviaroot) from pg_publication
	union all
	select format('published %s', to_jsonb(p)) from pg_publication_tables p
	union all
	select format('version %s', query_to_xml(format('select version from %I.schema_version order by 1', nspname), false, true, ''))
	from s
) lines order by line`
