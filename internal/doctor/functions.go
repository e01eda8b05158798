package doctor

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// sqlUnpinned finds functions that look names up where their caller says.
const sqlUnpinned = `
	select format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)), p.prosecdef
	from pg_proc p join pg_namespace n on n.oid = p.pronamespace
	where n.nspname = $1 and p.prokind = 'f' and p.prosqlbody is null and not exists (
		select from unnest(coalesce(p.proconfig, '{}')) setting where setting like 'search\_path=%')
	order by p.prosecdef desc, 1`

// pinned looks for functions of the outbox without a search_path of their own:
// their caller decides which table they mean, and with SECURITY DEFINER what they
// do with their owner's rights.
func pinned(ctx context.Context, p *patient) (finding, error) {
	rows, err := p.conn.Query(ctx, sqlUnpinned, p.cfg.Schema)
	if err != nil {
		return finding{}, err
	}
	var names, list []string
	status := Warn
	var function string
	var definer bool
	_, err = pgx.ForEachRow(rows, []any{&function, &definer}, func() error {
		if definer {
			status = Fail
		}
		names = append(names, function)
		list = append(list, "alter function "+function+" set search_path = pg_catalog, "+ident(p.cfg.Schema)+", pg_temp")
		return nil
	})
	if err != nil || len(names) == 0 {
		return pass("all"), err
	}
	return finding{
		status: status, observed: strings.Join(names, ", "),
		message: "functions without a search_path of their own use what their caller puts in the way",
		remedy:  "as the owner of the functions",
		sql:     script(list...), safe: true,
	}, nil
}

// sqlPublic finds what everybody may do: run functions, make things in the
// schema, use tables. Each row is what to say and what to revoke.
const sqlPublic = `
	select 'create in schema ' || quote_ident(n.nspname), 'create on schema ' || quote_ident(n.nspname)
	from pg_namespace n, aclexplode(n.nspacl) a where n.nspname = $1 and a.grantee = 0 and a.privilege_type = 'CREATE'
	union all
	select lower(a.privilege_type) || ' on ' || c.relname, lower(a.privilege_type) || ' on ' || format('%I.%I', n.nspname, c.relname)
	from pg_class c join pg_namespace n on n.oid = c.relnamespace, aclexplode(c.relacl) a
	where n.nspname = $1 and c.relkind in ('r', 'p', 'v') and a.grantee = 0
	union all
	select 'execute ' || p.proname, format('execute on function %I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid))
	from pg_proc p join pg_namespace n on n.oid = p.pronamespace
	where n.nspname = $1 and p.prosecdef and (p.proacl is null or exists (select from aclexplode(p.proacl) a where a.grantee = 0))
	order by 1`

// public looks for what every role of the database may do with the outbox. A
// function that runs with its owner's rights is one of these from its creation
// on.
func public(ctx context.Context, p *patient) (finding, error) {
	rows, err := p.conn.Query(ctx, sqlPublic, p.cfg.Schema)
	if err != nil {
		return finding{}, err
	}
	var names, list []string
	var name, right string
	_, err = pgx.ForEachRow(rows, []any{&name, &right}, func() error {
		names = append(names, name)
		list = append(list, "revoke "+right+" from public")
		return nil
	})
	if err != nil || len(names) == 0 {
		return pass("nothing"), err
	}
	return finding{
		status: Fail, observed: strings.Join(names, ", "),
		message: "every role of the database may use the outbox: send messages, read them or forge outcomes",
		remedy: "as the owner; first give the applications that count on it rights of their own, which " +
			"`outbox-relay grants print` prints",
		sql: script(list...),
	}, nil
}
