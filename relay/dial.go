package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// dialer opens the connections of the stores. It finds out whether they lead
// through a connection pooler, which gives each transaction another session of
// the server: nothing may be left in a session then, neither settings nor
// prepared statements.
type dialer struct {
	direct, pooled *pgx.ConnConfig
	stream         compass
	log            *zap.Logger

	mu      sync.Mutex
	pooler  bool      // there is one
	refused error     // what the server said last, if it refused the role
	until   time.Time // no other attempt before
}

// refusalPause is the wait after the server refused the role or its password,
// for all stores together: where failures are counted, more of them would lock
// the role out.
const refusalPause = 10 * time.Second

// settings are what every statement here wants. The relay's marks need not wait
// for a standby: a mark that is lost in a failover costs one repeated request
// with the same key, and a relay that is a synchronous standby itself must never
// wait for itself. Every statement finds its rows by a key: tables that fill and
// empty within minutes mislead the planner, and a scan of dispatched for every
// batch would stop the relay. And where row security would hide messages, every
// statement fails instead: a hidden message must not be taken for one that was
// withdrawn. A lock that somebody else has ends a statement after a while, which
// is then tried again: whoever asks how the relay is doing gets to know of it. A
// chunk of some hundred rows is not worth processes that the server has for others.
// Batches of outcomes quote their values, and messages have the bytes of the WAL,
// which is read in the same encoding.
var settings = map[string]string{
	"lock_timeout":       "5000", // milliseconds
	"synchronous_commit": "local",
	"search_path":        "pg_catalog",
	"enable_seqscan":     "off",
	"enable_hashjoin":    "off",
	"enable_mergejoin":   "off",
	"enable_bitmapscan":  "off",
	"row_security":       "off",

	"max_parallel_workers_per_gather": "0",
	"client_encoding":                 "UTF8",
	"standard_conforming_strings":     "on",
}

func newDialer(database *pgx.ConnConfig, slot string, log *zap.Logger) *dialer {
	d := &dialer{direct: database.Copy(), pooled: database.Copy(), log: log}
	for _, config := range []*pgx.ConnConfig{d.direct, d.pooled} {
		// Poolers take these two.
		config.RuntimeParams["application_name"] = "outbox-relay " + slot
		config.RuntimeParams["client_encoding"] = settings["client_encoding"]
		config.ValidateConnect = d.stream.primary(config.ValidateConnect)
		config.ConnectTimeout = patience(config)
	}
	maps.Copy(d.direct.RuntimeParams, settings)
	d.pooled.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	return d
}

// connect opens a connection and reports whether a pooler is in between. After
// the server refused the role it repeats the refusal for a while. The lock is
// not held meanwhile: an attempt can hang. Each has a copy of the configuration,
// which pgx and its hooks write to.
func (d *dialer) connect(ctx context.Context) (conn *pgx.Conn, pooler bool, err error) {
	pooler, err = d.known()
	if err != nil {
		return nil, false, err
	}
	if !pooler {
		conn, pooler, err = d.probe(ctx)
	}
	if pooler && err == nil {
		conn, err = pgx.ConnectConfig(ctx, d.pooled.Copy())
	}
	if err != nil {
		err = &pgtext.ConnectError{Err: err}
	}
	d.learn(pooler, err)
	return conn, pooler, err
}

// known is what earlier attempts have shown.
func (d *dialer) known() (pooler bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Now().Before(d.until) {
		err = d.refused
	}
	return d.pooler, err
}

func (d *dialer) learn(pooler bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if pooler && !d.pooler {
		d.pooler = true
		d.log.Info("connection pooler found, every transaction brings its own settings")
	}
	if !isRefusal(err) {
		d.refused = nil
		return
	}
	if d.refused == nil {
		d.log.Error("database refuses the relay's role, will be tried again", zap.Error(err),
			zap.String(keyHint, "check the role's password, pg_hba.conf and the certificates; a password file is read again at every attempt"),
			zap.Duration(keyWait, refusalPause))
	}
	d.refused, d.until = err, time.Now().Add(refusalPause)
}

// probe connects as if there were no pooler. If there is one, it is found here
// and the connection is none.
func (d *dialer) probe(ctx context.Context) (conn *pgx.Conn, pooler bool, err error) {
	conn, err = pgx.ConnectConfig(ctx, d.direct.Copy())
	if refusesSettings(err) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	if pooler, err = namesAnother(ctx, conn); err != nil || pooler {
		_ = conn.Close(ctx)
		return nil, pooler, err
	}
	return conn, false, nil
}

// refusesSettings reports whether an error is a pooler's that cannot keep
// settings for a connection.
func refusesSettings(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.Contains(pgErr.Message, "unsupported startup parameter")
}

// namesAnother reports whether a pooler answers: it names a process of its own
// when a client connects, because which one of the server will serve the client
// is not known yet. One that was told to ignore settings is found by this alone.
func namesAnother(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var pid uint32
	err := conn.QueryRow(ctx, `select pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	return err == nil && pid != conn.PgConn().PID(), err
}

// isRefusal reports whether the server refused the role or its password, or one
// side does not trust the other's certificate.
func isRefusal(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == "28P01" || pgErr.Code == "28000") || pgtext.Distrust(err)
}

// sqlBegin is how a transaction begins behind a pooler. The isolation is what
// statements have that run on their own.
var sqlBegin = func() string {
	var sql strings.Builder
	sql.WriteString("begin isolation level read committed")
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&sql, "; set local %s = %s", name, settings[name])
	}
	return sql.String()
}()

// inTransaction runs do in a transaction with our settings.
func inTransaction(ctx context.Context, conn *pgx.Conn, do func(*pgx.Conn) error) error {
	if err := conn.PgConn().Exec(ctx, sqlBegin).Close(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := do(conn); err != nil {
		if _, undone := conn.Exec(ctx, "rollback"); undone != nil {
			_ = conn.Close(ctx)
		}
		return err
	}
	tag, err := conn.Exec(ctx, "commit")
	if err == nil && tag.String() != "COMMIT" {
		err = errors.New("rolled back")
	}
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
