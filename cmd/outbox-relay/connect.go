package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// names is the part of the settings that is always read: the log, and what
// schema, slot and publication are called.
const names config.Part = "names"

// closeTimeout bounds the farewell to a server that does not answer.
const closeTimeout = 2 * time.Second

// connect opens a connection for questions, beside what moves messages.
func connect(ctx context.Context, cfg *config.Config) (*pgx.Conn, error) {
	settings := cfg.Database()
	settings.ConnectTimeout = cfg.CDC.ConnectTimeout
	settings.RuntimeParams["application_name"] = "outbox-relay"
	settings.DefaultQueryExecMode = pgx.QueryExecModeExec // also behind a pooler
	conn, err := pgx.ConnectConfig(ctx, cdc.Primary(ctx, settings, cfg.CDC.ConnectTimeout))
	if err != nil {
		return nil, &connectError{pgtext.ConnectError{Err: err}}
	}
	if err := pgtext.PinPath(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return nil, &connectError{pgtext.ConnectError{Err: err}}
	}
	return conn, nil
}

// withConnection runs do on a connection for a verb's own questions.
func withConnection(ctx context.Context, cfg *config.Config, do func(*pgx.Conn) error) error {
	conn, err := connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	return do(conn)
}

// connectError says that the database could not be connected to.
type connectError struct{ pgtext.ConnectError }

// Hint says what to do, or who looks closer.
func (e *connectError) Hint() string {
	if hint := pgtext.Crowded(e.Err, false); hint != "" {
		return hint
	}
	return "`outbox-relay doctor` says more"
}

// passes reports whether an error of the database may pass by itself: nobody
// answers, or the server says that it cannot answer now.
func passes(err error) bool {
	code := pgtext.SQLState(err)
	if code == "" {
		return is[*connectError](err) && !pgtext.Distrust(err)
	}
	switch code[:2] {
	case "08", "53", "57", "58": // connection, resources, intervention, system
		return true
	}
	return false
}
