package cdc

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// identity tells which server, and which of its histories, a connection leads
// to. A clone or a restored copy has the same system identifier until it is
// promoted, which starts a new timeline.
type identity struct {
	system   string // the system identifier
	timeline int32
	database string
	pid      string // of the connection's own backend
	flushed  lsn    // the end of its durable WAL; 0: not asked for
}

// sameAs reports whether both connections lead to the same database of the
// same primary.
func (a identity) sameAs(b identity) bool {
	return a.system == b.system && a.timeline == b.timeline && a.database == b.database
}

func (a identity) String() string {
	return fmt.Sprintf("database %q of system %s on timeline %d", a.database, a.system, a.timeline)
}

// server is what the first look at a server shows.
type server struct {
	identity
	version    int // as server_version_num, such as 150018
	inRecovery bool
	readOnly   bool
	walLevel   string
}

// selectServer asks the server about itself. All of it is open to every role;
// nothing is locked. The timeline is that of the WAL being written: the one in
// the control file is old until the first checkpoint after a promotion.
const selectServer = `
	select (select system_identifier::text from pg_catalog.pg_control_system()),
	       case when r.recovering then 0
	            else ('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::int
	       end,
	       pg_catalog.current_database()::text,
	       pg_catalog.pg_backend_pid()::text,
	       pg_catalog.current_setting('server_version_num')::int,
	       r.recovering,
	       pg_catalog.current_setting('transaction_read_only') = 'on',
	       coalesce(pg_catalog.current_setting('effective_wal_level', true), pg_catalog.current_setting('wal_level'))
	from (select pg_catalog.pg_is_in_recovery() as recovering) r`

// inspectServer looks at the server behind the connection, which must be a
// primary that can be written to.
func inspectServer(ctx context.Context, conn *pgx.Conn) (server, error) {
	var s server
	err := conn.QueryRow(ctx, selectServer).Scan(
		&s.system, &s.timeline, &s.database, &s.pid, &s.version, &s.inRecovery, &s.readOnly, &s.walLevel)
	if err != nil {
		return server{}, fmt.Errorf("inspect the server: %w", err)
	}
	switch {
	case s.inRecovery:
		return server{}, fmt.Errorf("%w: %s is a standby; the relay needs the primary", errNotPrimary, address(conn))
	case s.readOnly:
		return server{}, fmt.Errorf("%w: %s; the relay records outcomes", errReadOnly, address(conn))
	}
	return s, nil
}

// versionRaisesLevel is the first version that begins to write logical WAL when
// the first logical slot is made.
const versionRaisesLevel = 190000

// requireLogical refuses a server that writes no logical WAL, and will not.
func (s server) requireLogical() error {
	raises := s.version >= versionRaisesLevel && s.walLevel == "replica"
	if s.walLevel != "logical" && !raises {
		return &OperatorError{
			kind: ErrServer,
			text: fmt.Sprintf("wal_level is %q, needs %q", s.walLevel, "logical"),
			hint: "alter system set wal_level = 'logical', then restart Postgres; on managed services it is a parameter such as rds.logical_replication",
		}
	}
	return nil
}

// The first version whose slots can follow a failover.
const versionFailoverSlots = 170000

// selectRowSecurity asks whether row security hides messages from the role.
const selectRowSecurity = `
	select pg_catalog.row_security_active(c.oid), current_user::text
	from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
	where n.nspname = $1 and c.relname = $2`

// requireVisible refuses a table whose rows are hidden from the role that reads
// deferred messages and records outcomes.
func requireVisible(ctx context.Context, conn *pgx.Conn, schema string) error {
	var active bool
	var role string
	err := conn.QueryRow(ctx, selectRowSecurity, schema, tableName).Scan(&active, &role)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // the check of the table says so, with more words
	}
	if err != nil {
		return fmt.Errorf("ask for row security: %w", err)
	}
	if active {
		table := pgx.Identifier{schema, tableName}.Sanitize()
		return &OperatorError{
			kind: ErrTable,
			text: fmt.Sprintf("row security hides rows of %s from role %q", table, role),
			hint: fmt.Sprintf("alter table %s disable row level security; or give the role a policy and BYPASSRLS", table),
		}
	}
	return nil
}

// address is where a connection leads to, for people.
func address(conn *pgx.Conn) string {
	config := conn.Config()
	return fmt.Sprintf("%s:%d", config.Host, config.Port)
}
