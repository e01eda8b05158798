// Package status reads how the relay of one slot is doing, from Postgres alone:
// it works while the relay does not.
//
// It reads; it locks nothing that anybody waits for, and no query grows with
// the tables: counts stop at a bound and say so.
package status

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Report is the state at one moment. Ages and sizes that are not known are nil.
type Report struct {
	SchemaVersion int `json:"schema_version"`
	// Summary is the report in one sentence.
	Summary string `json:"summary"`
	// At is the server's clock.
	At time.Time `json:"at"`
	Mover
	// WithoutOutcome counts messages that are neither dispatched nor deferred
	// nor dead letters, among the newest ones.
	WithoutOutcome Count `json:"without_outcome"`
	// WithoutOutcomeQueues are the queues with most of them.
	WithoutOutcomeQueues []QueueCount `json:"without_outcome_queues"`
	// Unseen are those that the relay does not have; nil as long as none was asked.
	Unseen *Unseen `json:"unseen"`
	// Deferred counts the messages that wait in the table.
	Deferred Count `json:"deferred"`
	// DeferredPace is how that changes; nil as long as no relay was asked, or if it
	// does not know.
	DeferredPace *Pace `json:"deferred_pace"`
	// DeferredReasons says for what they wait, the most frequent reason first.
	DeferredReasons []Reason `json:"deferred_reasons"`
	// DeadLetters counts the messages that need a person.
	DeadLetters Count `json:"dead_letters"`
	// Claims is how large the table of claims is.
	Claims Claims `json:"claims"`
	// PausedQueues are the queues that somebody has paused, at most 100.
	PausedQueues []string `json:"paused_queues"`
	// Pauses are the same with who did it, when and why.
	Pauses []Pause `json:"pauses"`
	// Breakers are those that are open; nil as long as no relay was asked.
	Breakers []Breaker `json:"breakers"`
	// Findings are what the relay itself says against its health; nil as long as none
	// was asked.
	Findings []Finding `json:"findings"`
	// RelayError is why no relay was asked; empty if one was.
	RelayError string `json:"relay_error"`

	// Looked is when the look began, by the clock of this process.
	Looked time.Time `json:"-"`

	system  string // the system identifier of the server
	settled int64  // messages without outcome that a stream has had time to show
}

// Count is a number of rows that was counted up to a bound.
type Count struct {
	Count int64 `json:"count"`
	// AtLeast says that there may be more.
	AtLeast bool `json:"at_least"`
	// OldestSeconds is the age of the oldest one that was counted.
	OldestSeconds *float64 `json:"oldest_seconds"`
}

// Bound is where counts stop.
const Bound = 100_000

// statementTimeout bounds each query: a status that hurts is worse than none.
const statementTimeout = 5 * time.Second

// Read reads the state of a slot and of the tables in schema.
func Read(ctx context.Context, conn *pgx.Conn, schema, slot string) (r *Report, err error) {
	err = Snapshot(ctx, conn, func(tx pgx.Tx) error {
		r, err = ReadIn(ctx, tx, schema, slot)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// ReadIn is Read in a transaction of [Snapshot].
func ReadIn(ctx context.Context, tx pgx.Tx, schema, slot string) (*Report, error) {
	r := &Report{SchemaVersion: 1, Mover: Mover{slotName: slot}}
	if err := r.read(ctx, tx, schema); err != nil {
		return nil, fmt.Errorf("read status: %w", err)
	}
	r.Summary = r.sentence()
	return r, nil
}

// sqlLimits are for one transaction. Rows are found by their keys: a table that a
// backlog has filled stays as large when it is empty again, and is not read as a whole
// for what is left in it. Nobody who can make functions comes before the server's own.
var sqlLimits = fmt.Sprintf(`set local statement_timeout = %d; set local enable_seqscan = off;
set local search_path = pg_catalog`, statementTimeout.Milliseconds())

// Snapshot runs do in a transaction that changes nothing, sees the tables as they
// were at one moment, and whose statements cannot take long.
func Snapshot(ctx context.Context, conn *pgx.Conn, do func(pgx.Tx) error) error {
	moment := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, conn, moment, func(tx pgx.Tx) error {
		if _, err := tx.Conn().PgConn().Exec(ctx, sqlLimits).ReadAll(); err != nil {
			return err
		}
		return do(tx)
	})
}

func (r *Report) read(ctx context.Context, tx pgx.Tx, schema string) error {
	in := func(sql string) string {
		return strings.ReplaceAll(sql, "outbox.", pgx.Identifier{schema}.Sanitize()+".")
	}
	r.Looked = time.Now()
	if err := tx.QueryRow(ctx, sqlHereAndNow).Scan(&r.At, &r.system); err != nil {
		return err
	}
	if err := r.Mover.read(ctx, tx, in); err != nil {
		return err
	}
	if err := r.readWaiting(ctx, tx, in); err != nil {
		return err
	}
	for _, c := range []struct {
		into *Count
		sql  string
	}{{&r.Deferred, sqlDeferred}, {&r.DeadLetters, sqlDeadLetters}} {
		if err := tx.QueryRow(ctx, in(c.sql), Bound).Scan(&c.into.Count, &c.into.AtLeast, &c.into.OldestSeconds); err != nil {
			return err
		}
	}
	if err := r.readReasons(ctx, tx, in); err != nil {
		return err
	}
	if err := r.readPauses(ctx, tx, in); err != nil {
		return err
	}
	return r.readClaims(ctx, tx, schema, in)
}

const sqlHereAndNow = `select clock_timestamp(), (select system_identifier::text from pg_control_system())`

const sqlDeferred = `
select count(*), count(*) = $1::bigint, extract(epoch from clock_timestamp() - min(deferred_at))::float8
from (select deferred_at from outbox.deferred order by message_id limit $1::bigint) d`

const sqlDeadLetters = `
select count(*), count(*) = $1::bigint, extract(epoch from clock_timestamp() - min(died_at))::float8
from (select died_at from outbox.dead_letters where reason <> 'discarded' order by message_id limit $1::bigint) d`
