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

// right is what a role may do with one of our tables or functions.
type right struct {
	object     string
	privileges []string
}

// grant is the statement that gives some of the privileges.
func (r right) grant(p *patient, privileges []string) string {
	object := p.table(r.object)
	if strings.Contains(r.object, "(") {
		object = "function " + p.function(r.object)
	}
	return "grant " + strings.Join(privileges, ", ") + " on " + object + " to " + ident(p.role())
}

// rights are what the relay uses.
var rights = []right{
	{"schema_version", []string{"select"}},
	{"messages", []string{"select"}},
	{"dispatched", []string{"select", "insert"}},
	{"deferred", []string{"select", "insert", "update", "delete"}},
	{"dead_letters", []string{"select", "insert"}},
	{"withdrawn", []string{"select", "insert"}},
	{"queues", []string{"select"}},
	{"envelopes", []string{"select", "insert", "update", "delete"}},
	{"relays", []string{"select", "insert", "update"}},
	{"record_position(text, bigint, pg_lsn)", []string{"execute"}},
}

// function quotes a function that is written with its argument types.
func (p *patient) function(signature string) string {
	name, arguments, _ := strings.Cut(signature, "(")
	return p.table(name) + "(" + arguments
}

// grants asks for every right that the relay uses on what there is.
func grants(ctx context.Context, p *patient) (finding, error) {
	role, name := ident(p.role()), ident(p.cfg.Schema)
	var usage bool
	err := p.conn.QueryRow(ctx,
		`select has_schema_privilege($2::name, oid, 'usage') from pg_namespace where nspname = $1`, p.cfg.Schema, p.role()).Scan(&usage)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return skip("there is no schema " + name + "; see D31"), nil
	case sqlState(err) == "42704":
		return finding{
			status: Fail, observed: "no role " + role, message: "there is no role " + role,
			remedy: "`outbox-relay grants print --role-relay` prints what makes it",
		}, nil
	case err != nil:
		return finding{}, err
	}
	var missing, list []string
	if !usage {
		missing = append(missing, "usage on schema "+name)
		list = append(list, "grant usage on schema "+name+" to "+role)
	}
	for _, r := range rights {
		lacking, err := p.lacking(ctx, r)
		if err != nil {
			return finding{}, err
		}
		if len(lacking) > 0 {
			missing = append(missing, strings.Join(lacking, ", ")+" on "+r.object)
			list = append(list, r.grant(p, lacking))
		}
	}
	if len(missing) == 0 {
		return pass("role " + role + " has them all"), nil
	}
	return finding{
		status: Fail, observed: "missing: " + strings.Join(missing, "; "),
		message: "role " + role + " lacks rights that the relay uses",
		remedy:  "as the owner of the schema; `outbox-relay grants print` prints them all",
		sql:     script(list...), safe: true,
	}, nil
}

// lacking are the privileges that the role has not, on an object that is there.
// The object is looked up in the catalog, because a name cannot be resolved
// without USAGE on its schema.
func (p *patient) lacking(ctx context.Context, r right) ([]string, error) {
	sql := `
		select privilege from unnest($3::text[]) privilege, pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = $1 and c.relname = $2 and not has_table_privilege($4::name, c.oid, privilege)`
	name, _, isFunction := strings.Cut(r.object, "(")
	if isFunction {
		sql = `
		select privilege from unnest($3::text[]) privilege, pg_proc p join pg_namespace n on n.oid = p.pronamespace
		where n.nspname = $1 and p.proname = $2 and not has_function_privilege($4::name, p.oid, privilege)`
	}
	rows, err := p.conn.Query(ctx, sql, p.cfg.Schema, name, r.privileges, p.role())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// exists reports whether there is one of our tables, whatever the role may do
// with it.
func (p *patient) exists(ctx context.Context, table string) (exists bool, err error) {
	err = p.conn.QueryRow(ctx, `
		select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
			where n.nspname = $1 and c.relname = $2)`, p.cfg.Schema, table).Scan(&exists)
	return exists, err
}

// rowSecurity looks for tables whose rows are hidden from the relay: it would
// take hidden messages for withdrawn ones.
func rowSecurity(ctx context.Context, p *patient) (finding, error) {
	rows, err := p.conn.Query(ctx, `
		select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = $1 and c.relkind in ('r', 'p') and row_security_active(c.oid)
		order by c.relname`, p.cfg.Schema)
	if err != nil {
		return finding{}, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return finding{}, err
	}
	if len(tables) == 0 {
		return pass("not active for role " + ident(p.conn.Config().User)), nil
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
