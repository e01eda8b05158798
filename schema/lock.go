package schema

import (
	"context"
	"database/sql"
	"fmt"

	"go.uber.org/zap"
)

// lockKey is the advisory lock of the migrations of the schema $1.
const lockKey = `hashtextextended('outbox-relay migrate ' || $1::text, 0)`

// migrationLock is the session's advisory lock, taken while migrations run. The
// server frees it if the session ends in any other way.
type migrationLock struct {
	cfg Config
	log *zap.Logger
}

// SessionLock waits for the lock until ctx ends.
func (l migrationLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var locked bool
	err := conn.QueryRowContext(ctx, `select pg_try_advisory_lock(`+lockKey+`)`, l.cfg.Schema).Scan(&locked)
	if err == nil && !locked {
		l.log.Info("waiting for another migration")
		_, err = conn.ExecContext(ctx, `select pg_advisory_lock(`+lockKey+`)`, l.cfg.Schema)
	}
	if err != nil {
		return fmt.Errorf("take the migration lock: %w", err)
	}
	return nil
}

// SessionUnlock gives the lock back.
func (l migrationLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, `select pg_advisory_unlock(`+lockKey+`)`, l.cfg.Schema); err != nil {
		return fmt.Errorf("give the migration lock back: %w", err)
	}
	return nil
}
