package cdc

import (
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// pinned are the settings of a session that decide how values are printed and
// what could end it. They go into the startup packet, where they win over those
// of the role and of the database. (transaction_timeout, which servers before
// 17 do not know, follows in [wire.identify].)
var pinned = map[string]string{
	"client_encoding":                     "UTF8",
	"DateStyle":                           "ISO, YMD",
	"TimeZone":                            "UTC",
	"IntervalStyle":                       "postgres",
	"bytea_output":                        "hex",
	"extra_float_digits":                  "1",
	"search_path":                         "pg_catalog",
	"statement_timeout":                   "0",
	"lock_timeout":                        "0",
	"idle_in_transaction_session_timeout": "0",
	"idle_session_timeout":                "0",
}

// cancelGrace is how long a cancelled statement has to end before its
// connection is given up.
const cancelGrace = time.Second

// streamConfig is the configuration of the replication connection.
func streamConfig(base *pgx.ConnConfig, walSenderTimeout time.Duration) *pgx.ConnConfig {
	c := sqlConfig(base)
	c.RuntimeParams["replication"] = "database"
	c.RuntimeParams["wal_sender_timeout"] = fmt.Sprintf("%dms", walSenderTimeout.Milliseconds())
	return c
}

// sqlConfig is the configuration of an SQL connection straight to the server.
func sqlConfig(base *pgx.ConnConfig) *pgx.ConnConfig {
	c := plainConfig(base)
	maps.Copy(c.RuntimeParams, pinned)
	// Cancelling a statement tells the server, instead of leaving it at work
	// behind a connection that is gone: the making of a slot can wait for long.
	c.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: cancelGrace}
	}
	return c
}

// plainConfig is the configuration of an SQL connection that may lead through
// a connection pooler: no settings that poolers refuse, no prepared statements.
func plainConfig(base *pgx.ConnConfig) *pgx.ConnConfig {
	c := base.Copy()
	delete(c.RuntimeParams, "replication")
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = applicationName()
	}
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	c.StatementCacheCapacity = 0
	c.DescriptionCacheCapacity = 0
	return c
}

// applicationName tells an administrator which process holds the slot.
func applicationName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	name := fmt.Sprintf("outbox-relay %d@%s", os.Getpid(), host)
	return name[:min(len(name), identifierMax)]
}
