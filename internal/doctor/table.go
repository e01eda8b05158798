package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/schema"
)

// schemaVersion compares the migrations that were applied with those that this
// program needs.
func schemaVersion(ctx context.Context, p *patient) (finding, error) {
	err := schema.Check(ctx, p.conn, p.cfg.Schema)
	if err == nil {
		return pass("schema " + ident(p.cfg.Schema) + " has what this program needs"), nil
	}
	version, ok := errors.AsType[*schema.VersionError](err)
	if !ok {
		return finding{}, err
	}
	f := finding{
		status: Fail, observed: fmt.Sprintf("version %d", version.Have), expected: fmt.Sprintf("version %d", version.Want),
		message: fmt.Sprintf("schema %s has version %d, this program needs version %d", ident(p.cfg.Schema), version.Have, version.Want),
		remedy:  version.Hint(),
	}
	if version.Have == 0 {
		f.observed, f.message = "not there", "there is no schema "+ident(p.cfg.Schema)+" with the tables of the outbox"
	}
	return f, nil
}

// exists reports whether there is one of our tables, whatever the role may do
// with it.
func (p *patient) exists(ctx context.Context, table string) (exists bool, err error) {
	err = p.conn.QueryRow(ctx, `
		select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
			where n.nspname = $1 and c.relname = $2)`, p.cfg.Schema, table).Scan(&exists)
	return exists, err
}

// sqlRowSecurity finds the tables of which a role does not see every row, by the
// rules of row_security_active, which knows only the role that asks.
const sqlRowSecurity = `
	select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
	where n.nspname = $1 and c.relkind in ('r', 'p') and c.relrowsecurity and exists (
		select from pg_roles r where r.rolname = $2 and not r.rolsuper and not r.rolbypassrls
			and (c.relforcerowsecurity or not pg_has_role(r.oid, c.relowner, 'usage')))
	order by c.relname`

// rowSecurity looks for tables whose rows are hidden from the relay: it would
// take hidden messages for withdrawn ones.
func rowSecurity(ctx context.Context, p *patient) (finding, error) {
	rows, err := p.conn.Query(ctx, sqlRowSecurity, p.cfg.Schema, p.role())
	if err != nil {
		return finding{}, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return finding{}, err
	}
	if len(tables) == 0 {
		return pass("not active for role " + ident(p.role())), nil
	}
	var names, list []string
	for _, table := range tables {
		names = append(names, p.table(table))
		list = append(list, "alter table "+p.table(table)+" disable row level security")
	}
	return finding{
		status: Fail, observed: "active on " + strings.Join(names, ", "),
		message: "row security hides rows from the relay: it would take them for withdrawn, or fail to record outcomes",
		remedy:  "as the owner of the tables; or, as superuser, give the role BYPASSRLS",
		sql:     script(list...),
	}, nil
}
