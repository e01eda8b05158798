package poll

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// The lease is the advisory lock, held by the connection that reads.

const (
	// beatInterval is how often the server is asked for a sign of life when
	// nothing else is asked. The last word is about as old as this at most.
	beatInterval = 2 * time.Second
	// lockTimeout is how long a look waits for somebody who has locked the table
	// before it lets the lease breathe.
	lockTimeout = 2 * time.Second
	// closeTimeout bounds the farewell to a server that does not answer.
	closeTimeout = 2 * time.Second
)

// leaseConfig is the configuration of the connection with the lock. What stands
// in the startup packet wins over the settings of the role and of the database.
//
// The server ends a session that says nothing for the lease timeout. One that it
// is still sending to, it ends when that long nothing was acknowledged.
func leaseConfig(base *pgx.ConnConfig, lease time.Duration) *pgx.ConnConfig {
	c := base.Copy()
	delete(c.RuntimeParams, "replication")
	maps.Copy(c.RuntimeParams, keysOnly)
	timeout := strconv.FormatInt(lease.Milliseconds(), 10)
	maps.Copy(c.RuntimeParams, map[string]string{
		"application_name":                    "outbox-relay poll",
		"client_encoding":                     "UTF8",
		"DateStyle":                           "ISO, YMD",
		"extra_float_digits":                  "1",
		"search_path":                         "pg_catalog",
		"default_transaction_isolation":       "read committed", // every statement sees what was committed before it
		"idle_session_timeout":                timeout,
		"statement_timeout":                   timeout,
		"lock_timeout":                        strconv.FormatInt(lockTimeout.Milliseconds(), 10),
		"tcp_user_timeout":                    timeout,
		"idle_in_transaction_session_timeout": "0",
	})
	seekPrimary(c)
	// Cancelling a statement tells the server, instead of leaving it at work
	// with the lock in its hands.
	c.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Second}
	}
	return c
}

// seekPrimary lets a connection string with several hosts find the one that
// takes writes. With one there is nothing to choose: what is wrong with it is
// said with more words later.
func seekPrimary(c *pgx.ConnConfig) {
	several := slices.ContainsFunc(c.Fallbacks, func(other *pgconn.FallbackConfig) bool {
		return other.Host != c.Host || other.Port != c.Port
	})
	if several && c.ValidateConnect == nil {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
}

// identity tells which server a connection leads to.
type identity struct {
	system   string
	timeline int32
	database string
	pid      uint32 // of the backend
}

// sameAs reports whether both lead to the same database of the same primary.
func (a identity) sameAs(b identity) bool {
	return a.system == b.system && a.timeline == b.timeline && a.database == b.database
}

func (a identity) String() string {
	return fmt.Sprintf("database %q of system %s on timeline %d", a.database, a.system, a.timeline)
}

// identify looks at the server, which must be a primary that takes writes.
func identify(ctx context.Context, conn *pgx.Conn) (id identity, err error) {
	var recovering, readOnly bool
	err = conn.QueryRow(ctx, sqlIdentity).Scan(&id.system, &id.timeline, &id.database, &id.pid, &recovering, &readOnly)
	where := fmt.Sprintf("%s:%d", conn.Config().Host, conn.Config().Port)
	switch {
	case err != nil:
		return id, fmt.Errorf("inspect the server: %w", err)
	case recovering:
		return id, fmt.Errorf("%w: %s is a standby; the relay needs the primary", errNotPrimary, where)
	case readOnly:
		return id, fmt.Errorf("%w: %s; the relay records outcomes", errReadOnly, where)
	}
	return id, nil
}

// requireDirect refuses a connection pooler. The server tells its clients the
// pid of their backend in the beginning; a pooler cannot know which backends
// will serve its client, and makes one up.
func requireDirect(conn *pgx.Conn, id identity) error {
	if told := conn.PgConn().PID(); told != id.pid {
		return poolerError(fmt.Sprintf("the connection was announced as backend %d and is served by %d", told, id.pid), nil)
	}
	return nil
}

// tryLock takes the lock if it is free. Otherwise it returns errHeld.
func tryLock(ctx context.Context, conn *pgx.Conn, slot string) error {
	var locked bool
	if err := conn.QueryRow(ctx, sqlLock, slot).Scan(&locked); err != nil {
		return fmt.Errorf("take the lock: %w", err)
	}
	if locked {
		return nil
	}
	var holder int
	err := conn.QueryRow(ctx, HolderSQL, slot).Scan(&holder)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w, which has just let it go", errHeld)
	}
	if err != nil {
		return fmt.Errorf("look for the holder of the lock: %w", err)
	}
	return &heldError{errHeld, holder}
}

// streamed returns errSlotInUse while a relay reads the WAL by the slot of that
// name: two relays must not take turns with one row of relays. It reports
// whether there is such a slot.
func streamed(ctx context.Context, conn *pgx.Conn, slot string) (exists bool, err error) {
	var holder int
	err = conn.QueryRow(ctx, sqlSlot, slot).Scan(&holder)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for the slot: %w", err)
	case holder != 0:
		return true, &heldError{errSlotInUse, holder}
	}
	return true, nil
}

// heldError says which session is in the way.
type heldError struct {
	kind error
	pid  int
}

func (e *heldError) Error() string { return fmt.Sprintf("%v, pid %d", e.kind, e.pid) }

func (e *heldError) Unwrap() error { return e.kind }

// hangUp gives the lock back and closes the connection, at most until ctx ends.
func hangUp(ctx context.Context, conn *pgx.Conn, slot string) error {
	var err error
	if !conn.IsClosed() {
		_, err = conn.Exec(ctx, sqlUnlock, slot)
	}
	return errors.Join(err, conn.Close(ctx))
}
