package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// Config says what is looked at. Zero values are the defaults.
type Config struct {
	// Schema and Slot are those of the relay.
	Schema, Slot string

	// From and To are the first and the last number to look at; 0 for all.
	From, To int64
	// Since looks at messages that were written from about that long ago on; 0 for
	// all.
	Since time.Duration
	// Batch is the number of messages in one snapshot, 10,000 unless set.
	Batch int
	// Young is the age up to which a message without outcome is on its way, a
	// minute unless set. Longer hides faults, shorter looks at more messages twice.
	Young time.Duration
	// Wait bounds the wait for the second look, 30 seconds unless set.
	Wait time.Duration
	// Examples is how many of the messages with a fault are listed, 20 unless set.
	Examples int
	// Ranges lists the counts of each batch.
	Ranges bool

	// Rest is how many times as long as a batch took to rest after it, for a check
	// that nobody waits for; 0 does not rest.
	Rest int
	// GoOn is asked after each batch, unless it is nil: false ends the check with
	// [ErrStopped].
	GoOn func() bool

	// pause is the wait between two looks.
	pause time.Duration
}

// ErrStopped says that Config.GoOn has ended a check.
var ErrStopped = errors.New("stopped")

const (
	defaultBatch    = 10_000
	defaultYoung    = time.Minute
	defaultWait     = 30 * time.Second
	defaultExamples = 20
	// secondLook is how long after the first one the second look is at least.
	secondLook = time.Second
)

// withDefaults replaces what is zero.
func (c Config) withDefaults() Config {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&c.Young, defaultYoung)
	set(&c.Wait, defaultWait)
	set(&c.pause, secondLook)
	if c.Batch == 0 {
		c.Batch = defaultBatch
	}
	if c.Examples == 0 {
		c.Examples = defaultExamples
	}
	return c
}

// Report is what was found.
type Report struct {
	SchemaVersion int `json:"schema_version"`
	// Summary is the report in one sentence, OK whether there is no fault in it.
	Summary string    `json:"summary"`
	OK      bool      `json:"ok"`
	At      time.Time `json:"at"`
	// Seconds is how long it took, Batches in how many snapshots.
	Seconds float64 `json:"seconds"`
	Batches int     `json:"batches"`

	Counts
	// Late counts the messages in flight that are older than Config.Young: nobody
	// moves them, or the slot has not passed them yet.
	Late int64 `json:"late"`
	// Unaccounted counts the messages without outcome that nothing will find before
	// a relay starts.
	Unaccounted int64 `json:"unaccounted"`
	// Faults counts the faults by kind, messages without outcome among them, and
	// Examples are the first of them.
	Faults   map[Kind]int64 `json:"faults"`
	Examples []Fault        `json:"examples"`
	// Ranges are the counts of each batch, if they were asked for.
	Ranges []Counts `json:"ranges,omitempty"`

	// Mover says who moves messages.
	Mover string `json:"relay"`

	atWork bool // a relay is
}

// Counts are the messages of a range of numbers. Each message is in one of
// dispatched, deferred, dead letters, in flight and unaccounted of the report.
type Counts struct {
	// From and To are the range, both included.
	From int64 `json:"from"`
	To   int64 `json:"to"`

	Messages    int64 `json:"messages"`
	Dispatched  int64 `json:"dispatched"`
	Deferred    int64 `json:"deferred"`
	DeadLetters int64 `json:"dead_letters"`
	// InFlight counts messages without outcome. In a range, those are among them
	// that turn out to be unaccounted.
	InFlight int64 `json:"in_flight"`

	// Withdrawn counts the withdrawals on record, the others outcomes of messages
	// that were deleted.
	Withdrawn         int64 `json:"withdrawn"`
	DispatchedDeleted int64 `json:"dispatched_deleted"`
	DeferredDeleted   int64 `json:"deferred_deleted"`
	DeadDeleted       int64 `json:"dead_letters_deleted"`
}

func (c *Counts) add(o *Counts) {
	c.Messages += o.Messages
	c.Dispatched += o.Dispatched
	c.Deferred += o.Deferred
	c.DeadLetters += o.DeadLetters
	c.InFlight += o.InFlight
	c.Withdrawn += o.Withdrawn
	c.DispatchedDeleted += o.DispatchedDeleted
	c.DeferredDeleted += o.DeferredDeleted
	c.DeadDeleted += o.DeadDeleted
}

// verifier is one run.
type verifier struct {
	cfg    Config
	conn   *pgx.Conn
	report *Report
	// late are the messages without outcome that are not young, wrong those with
	// a fault of another kind, both as the first look saw them.
	late, wrong []int64
	mover       *status.Mover
}

// doubtsBound is how many messages are looked at twice, at 8 bytes each. More of
// them are in flight only when no relay has been at work for long.
const doubtsBound = 1_000_000

// Run looks at everything that the settings name. An error means that it could
// not look, faults are in the report.
func Run(ctx context.Context, conn *pgx.Conn, cfg Config) (*Report, error) {
	v := &verifier{cfg: cfg.withDefaults(), conn: conn, report: &Report{
		SchemaVersion: 1, Faults: map[Kind]int64{}, Examples: []Fault{},
	}}
	began := time.Now()
	if err := v.run(ctx); err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	r := v.report
	r.Seconds = time.Since(began).Seconds()
	r.OK = len(r.Faults) == 0
	r.Mover, r.atWork = v.mover.String(), v.mover.AtWork()
	r.Summary = r.sentence()
	return r, nil
}

func (v *verifier) run(ctx context.Context) error {
	if err := v.bounds(ctx); err != nil {
		return err
	}
	for after := v.report.From - 1; after < v.report.To; {
		began := time.Now()
		last, err := v.batch(ctx, after)
		if err != nil {
			return err
		}
		if err := v.rest(ctx, time.Since(began)); err != nil {
			return err
		}
		after = last
	}
	return v.lookAgain(ctx)
}

// rest waits after a batch that took so long, and reports whether to go on.
func (v *verifier) rest(ctx context.Context, took time.Duration) error {
	if v.cfg.Rest > 0 && !waits.Sleep(ctx, time.Duration(v.cfg.Rest)*took) {
		return context.Cause(ctx)
	}
	if v.cfg.GoOn != nil && !v.cfg.GoOn() {
		return ErrStopped
	}
	return nil
}

// in puts the schema's name into a statement.
func (v *verifier) in(sql string) string {
	return strings.ReplaceAll(sql, "outbox.", pgx.Identifier{v.cfg.Schema}.Sanitize()+".")
}

// statementTimeout bounds each statement: a batch takes far less.
const statementTimeout = 30 * time.Second

// Tables that fill and empty within minutes mislead the planner, and a batch must
// not become a scan of a table. Nobody waits for us, and we do not wait long for
// somebody who locks a table as a whole. A batch needs little memory and one
// process, whatever the server gives to others.
var sqlLimits = fmt.Sprintf(`set local statement_timeout = %d; set local lock_timeout = '5s';
set local enable_seqscan = off; set local enable_bitmapscan = off;
set local work_mem = '8MB'; set local max_parallel_workers_per_gather = 0; set local jit = off`, statementTimeout.Milliseconds())

// snapshot runs do in a transaction that sees one moment.
func (v *verifier) snapshot(ctx context.Context, do func(pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, v.conn, options, func(tx pgx.Tx) error {
		if _, err := tx.Conn().PgConn().Exec(ctx, sqlLimits).ReadAll(); err != nil {
			return err
		}
		return do(tx)
	})
}
