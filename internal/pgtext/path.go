package pgtext

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Behind a pooler the session belongs to somebody else in the next moment, and
// nothing may be left in it. It names a process of its own when a client connects,
// because which one of the server will serve the client is not known yet.
const sqlPinPath = `
select pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)
where pg_catalog.pg_backend_pid() operator(pg_catalog.=) $1::pg_catalog.int4`

// PinPath makes a session look for names where only a superuser can make any.
// Whoever may create functions in a schema of the path could otherwise make one that
// fits the types of a call better than the server's own, and have it run with the
// rights of an administrator. Behind a pooler it does nothing.
func PinPath(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, sqlPinPath, pgx.QueryExecModeExec, int32(conn.PgConn().PID()))
	return err
}
