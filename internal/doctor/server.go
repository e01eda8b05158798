package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const oldestServer = 140000

// serverVersion opens the connection that all other checks of the database use.
func serverVersion(ctx context.Context, p *patient) (finding, error) {
	conn, err := p.connectSQL(ctx)
	if err != nil {
		return refusal(p.cfg.Database, err), nil
	}
	p.conn = conn
	var name string
	err = conn.QueryRow(ctx, `select current_setting('server_version_num')::int, current_setting('server_version')`).Scan(&p.version, &name)
	if err != nil {
		return finding{}, err
	}
	if p.version < oldestServer {
		return finding{
			status: Fail, observed: "Postgres " + name,
			message: "the relay needs what Postgres 14 brought to logical replication",
			remedy:  "upgrade the server",
		}, nil
	}
	if p.vendor, err = findVendor(ctx, conn); p.vendor.name != "" {
		name += " at " + p.vendor.name
	}
	return pass("Postgres " + name), err
}

// writable looks for a standby and for sessions that are read-only.
func writable(ctx context.Context, p *patient) (finding, error) {
	var recovering bool
	if err := p.conn.QueryRow(ctx, `select pg_is_in_recovery()`).Scan(&recovering); err != nil {
		return finding{}, err
	}
	if recovering {
		return finding{
			status: Fail, observed: "in recovery: a standby",
			message: address(p.cfg.Database) + " is a standby; outcomes can be recorded on the primary only",
			remedy:  "use the address of the primary, or list all hosts with target_session_attrs=read-write",
		}, nil
	}
	readOnly, source, err := p.readOnlySessions(ctx)
	switch {
	case err != nil:
		return finding{}, err
	case readOnly:
		return p.readOnly(source), nil
	}
	return pass("a primary, takes writes"), nil
}

// readOnlySessions reports whether sessions of the relay's role are read-only, and which
// source of settings decides that, in the words of pg_settings.
func (p *patient) readOnlySessions(ctx context.Context) (readOnly bool, source string, err error) {
	if p.cfg.Role == "" {
		err = p.conn.QueryRow(ctx, sqlOwnSession).Scan(&readOnly, &source)
		return readOnly, source, err
	}
	err = p.conn.QueryRow(ctx, sqlSessionOfRole, p.cfg.Role).Scan(&readOnly, &source)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, "", nil
	}
	return readOnly, source, err
}

const sqlOwnSession = `
	select current_setting('transaction_read_only')::bool, source
	from pg_settings where name = 'default_transaction_read_only'`

// The order is the server's own when a session begins. What this connection has
// from a source of its own says nothing about the server's files.
const sqlSessionOfRole = `
	select value::bool, source from (
		select split_part(setting, '=', 2) as value, s.setrole = 0 as everybody, s.setdatabase = 0 as everywhere,
			case when s.setrole = 0 and s.setdatabase = 0 then 'global' when s.setrole = 0 then 'database'
				when s.setdatabase = 0 then 'user' else 'database user' end as source
		from pg_db_role_setting s, unnest(s.setconfig) setting
		where setting like 'default\_transaction\_read\_only=%'
			and (s.setdatabase = 0 or s.setdatabase = (select oid from pg_database where datname = current_database()))
			and (s.setrole = 0 or s.setrole = (select oid from pg_roles where rolname = $1))
		union all
		select reset_val, true, null, source from pg_settings
		where name = 'default_transaction_read_only' and source in ('default', 'configuration file', 'command line')
	) candidates
	order by everybody, everywhere nulls last limit 1`

// readOnly tells who made the session read-only and undoes it where that is one
// statement.
func (p *patient) readOnly(source string) finding {
	f := finding{
		status: Fail, observed: "default_transaction_read_only is on, set by: " + source,
		message: "sessions of role " + ident(p.role()) + " are read-only: no outcome can be recorded",
		remedy:  "let the role write",
	}
	role, database := ident(p.role()), ident(p.conn.Config().Database)
	const reset = " reset default_transaction_read_only"
	switch source {
	case "user":
		f.sql, f.safe = script("alter role "+role+reset), true
	case "database user":
		f.sql, f.safe = script("alter role "+role+" in database "+database+reset), true
	case "database":
		f.sql = script("alter database " + database + reset)
	case "global":
		f.sql = script("alter role all" + reset)
	case "configuration file":
		f.sql = script("alter system set default_transaction_read_only = off", "select pg_reload_conf()")
	case "client":
		f.remedy = "take default_transaction_read_only out of DATABASE_URL or PGOPTIONS"
	}
	if p.vendor.readOnlyHint != "" {
		f.remedy += "; " + p.vendor.readOnlyHint
	}
	return f
}

// raisesLevel is the first version that begins to write logical WAL when the first
// logical slot is made, and whose level in effect may be higher than the one that
// is set.
const raisesLevel = 190000

// walLevel looks whether the WAL holds what logical decoding needs.
func walLevel(ctx context.Context, p *patient) (finding, error) {
	var level string
	err := p.conn.QueryRow(ctx,
		`select coalesce(current_setting('effective_wal_level', true), current_setting('wal_level'))`).Scan(&level)
	if err != nil {
		return finding{}, err
	}
	switch {
	case level == "logical":
		return pass(level), nil
	case level == "replica" && p.version >= raisesLevel:
		return pass(level + ": the server raises it when a slot is made"), nil
	}
	f := finding{
		status: Fail, observed: level,
		message: fmt.Sprintf("wal_level is %q: the server cannot decode its WAL", level),
		remedy:  "set wal_level to logical, as superuser, and restart the server",
		sql:     script("alter system set wal_level = 'logical'"),
	}
	if p.vendor.walLevel != "" {
		f.remedy, f.sql = p.vendor.walLevel, nil
	}
	return f, nil
}

// mayReplicate looks at the role's flags, and where these say no, tries: some
// services give the right in ways of their own.
func mayReplicate(ctx context.Context, p *patient) (finding, error) {
	role := p.cfg.Replication.User
	if p.cfg.Role != "" {
		role = p.cfg.Role
	}
	var flag, member bool
	err := p.conn.QueryRow(ctx, `
		select coalesce(bool_or(rolreplication or rolsuper), false),
			coalesce(bool_or(exists (select from pg_roles g where g.rolname = 'rds_replication'
				and pg_has_role(r.oid, g.oid, 'member'))), false)
		from pg_roles r where rolname = $1`, role).Scan(&flag, &member)
	if err != nil {
		return finding{}, err
	}
	p.mayReplicate = true
	switch _, streamErr := p.openStream(ctx); {
	case flag:
		return pass("role " + ident(role) + " has REPLICATION"), nil
	case member:
		return pass("role " + ident(role) + " is a member of rds_replication"), nil
	case streamErr == nil && role == p.cfg.Replication.User:
		return pass("role " + ident(role) + " has no flag for it, but the server lets it"), nil
	}
	p.mayReplicate = false
	f := finding{
		status: Fail, observed: "role " + ident(role) + " has neither REPLICATION nor superuser",
		message: "role " + ident(role) + " may not replicate",
		remedy:  "give it the right, as superuser or, from Postgres 16 on, as a role that has it with CREATEROLE",
		sql:     script("alter role " + ident(role) + " replication"), safe: true,
	}
	if v := p.vendor; v.replication != "" {
		f.remedy, f.sql = v.replication, nil
		if v.replicationSQL != "" {
			f.sql = script(fmt.Sprintf(v.replicationSQL, ident(role)))
		}
	}
	return f, nil
}
