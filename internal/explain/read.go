package explain

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/status"
)

// Config says how to look.
type Config struct {
	// Schema and Slot are those of the relay.
	Schema, Slot string
	// Retention and MaxAttempts are the relay's settings, as far as they are known
	// here.
	Retention   time.Duration
	MaxAttempts int
	// Payload asks for payload and headers.
	Payload bool
	// Key says that what looks like a number is a key.
	Key bool
}

// reader reads one report.
type reader struct {
	cfg Config
	tx  pgx.Tx
	*Report
}

// Read looks a message up by its id or key. Digits are an id, unless only a key
// has them. It returns a report of the state [Unknown] if there is no such message.
func Read(ctx context.Context, conn *pgx.Conn, cfg Config, name string) (*Report, error) {
	r := &reader{cfg: cfg, Report: &Report{SchemaVersion: 1, Commands: []string{}, Timeline: []Event{}, cfg: cfg}}
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, conn, options, func(tx pgx.Tx) error {
		r.tx = tx
		if _, err := conn.PgConn().Exec(ctx, sqlLimits).ReadAll(); err != nil {
			return err
		}
		return r.read(ctx, name)
	})
	if err != nil {
		return nil, fmt.Errorf("explain: %w", err)
	}
	r.judge(name)
	return r.Report, nil
}

// Rows are found by their keys, whatever the planner believes of tables that fill
// and empty within minutes. Nobody waits for us, and we do not wait long for
// somebody who locks a table as a whole.
const sqlLimits = `set local statement_timeout = '10s'; set local lock_timeout = '3s';
set local enable_seqscan = off; set local enable_bitmapscan = off`

// in puts the schema's name into a statement.
func (r *reader) in(sql string) string {
	return strings.ReplaceAll(sql, "outbox.", pgx.Identifier{r.cfg.Schema}.Sanitize()+".")
}

// row reads one row. It reports whether there is one.
func (r *reader) row(ctx context.Context, sql string, args []any, into ...any) (bool, error) {
	err := r.tx.QueryRow(ctx, r.in(sql), args...).Scan(into...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (r *reader) read(ctx context.Context, name string) error {
	if err := r.tx.QueryRow(ctx, `select clock_timestamp()`).Scan(&r.At); err != nil {
		return err
	}
	mover, err := status.ReadMover(ctx, r.tx, r.cfg.Schema, r.cfg.Slot)
	if err != nil {
		return err
	}
	r.Mover = *mover
	found, err := r.find(ctx, name)
	switch {
	case err != nil:
		return err
	case !found:
		return r.readPossibilities(ctx, name)
	}
	if err := r.readDetails(ctx); err != nil {
		return err
	}
	if err := r.readQueue(ctx); err != nil {
		return err
	}
	return r.readLane(ctx)
}

// find reads the message and its outcomes.
func (r *reader) find(ctx context.Context, name string) (bool, error) {
	id, err := strconv.ParseInt(name, 10, 64)
	if err == nil && !r.cfg.Key {
		r.MessageID = id
		if _, err := r.readMessage(ctx, `message_id = $1::bigint`, id); err != nil {
			return false, err
		}
		if err := r.readOutcomes(ctx); err != nil {
			return false, err
		}
		if r.known() {
			return true, nil
		}
	}
	found, err := r.readMessage(ctx, `key = $1::text`, name)
	if err != nil || !found {
		return false, err
	}
	return true, r.readOutcomes(ctx)
}

// known reports whether there is anything of the message.
func (r *Report) known() bool {
	return r.Message != nil || r.Dispatched != nil || r.Deferred != nil || r.DeadLetter != nil || r.Withdrawn != nil
}
