package pgtext

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// Crowded is what to do about a server that has no connection left for the
// relay, and empty for every other error. Its own text does not always say which
// limit that is.
func Crowded(err error, replication bool) string {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok || refused.Code != "53300": // too_many_connections
		return ""
	case replication:
		return "end a walsender that nobody needs (see pg_stat_replication), or raise max_wal_senders and restart Postgres; " +
			"a connection limit of the role or of the database counts as well"
	default:
		return "close connections that nobody needs (see pg_stat_activity), or raise max_connections and restart Postgres; " +
			"a connection limit of the role or of the database counts as well"
	}
}
