package verify

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

const (
	// turn is how often a checker looks whether it has something to do.
	turn = 10 * time.Second
	// firstCheck is how long after a relay has begun to move messages it checks: what
	// a start has to do comes first.
	firstCheck = 10 * time.Minute
	// checkAgain is the wait after a fault, which the sweep mends within minutes as
	// far as it can, and after a check that failed.
	checkAgain = 15 * time.Minute
	// overlap is how much farther back a check looks than to the last one.
	overlap = 2 * time.Hour
	// leastTimeout bounds a check that comes often; others may last until the next.
	leastTimeout = time.Hour

	// A batch of a quiet check is small, and a twentieth of the time is for batches.
	quietBatch = 2_000
	quietRest  = 19
)

// Checker checks the outbox from time to time, for as long as its relay moves
// messages.
type Checker struct {
	settings     Settings
	schema, slot string
	connect      func(context.Context) (*pgx.Conn, error)
	leads        func() bool
	log          *zap.Logger
	run          func(context.Context, *pgx.Conn, Config) (*Report, error) // [Run], except in tests

	result atomic.Pointer[Result]

	// Of Run alone.
	try time.Time // no check before this; zero while the relay does not lead
}

// Result is what is known of the checks of one process. It is not to be changed.
type Result struct {
	// Report is the last check that came to its end; nil before the first, and when
	// the relay does not lead any more: another one checks then.
	Report *Report
	// Ended is when that was.
	Ended time.Time
	// Due is when the next check is to begin, or was to; zero unless the relay leads.
	Due time.Time
	// Failures counts the checks that could not be made.
	Failures uint64
}

// Options say what a [Checker] checks.
type Options struct {
	Schema, Slot string
	// Connect opens a connection for one check.
	Connect func(context.Context) (*pgx.Conn, error)
	// Leads reports whether this relay moves messages.
	Leads func() bool
}

// NewChecker returns a checker that has checked nothing yet.
func NewChecker(s Settings, o Options, log *zap.Logger) *Checker {
	c := &Checker{settings: s, schema: o.Schema, slot: o.Slot, connect: o.Connect, leads: o.Leads, log: log.Named("verify"), run: Run}
	c.result.Store(&Result{})
	return c
}

// Last is what is known now. It may be called from any goroutine.
func (c *Checker) Last() Result { return *c.result.Load() }

// Run checks until ctx ends.
func (c *Checker) Run(ctx context.Context) {
	if c.settings.Interval == 0 {
		return
	}
	ticker := time.NewTicker(turn)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.turn(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// turn checks if it is time to.
func (c *Checker) turn(ctx context.Context) {
	now, next := time.Now(), c.Last()
	switch {
	case !c.leads():
		c.try = time.Time{}
		c.result.Store(&Result{Failures: next.Failures})
	case c.try.IsZero():
		c.try = now.Add(min(firstCheck, c.settings.Interval))
		next.Due = c.try
		c.result.Store(&next)
	case !now.Before(c.try):
		c.check(ctx)
	}
}

// check makes one check and plans the next.
func (c *Checker) check(ctx context.Context) {
	next := c.Last()
	report, err := c.look(ctx, next.Report)
	now := time.Now()
	switch {
	case ctx.Err() != nil, errors.Is(err, ErrStopped):
		return // the next turn sees to it
	case err != nil:
		next.Failures++
		c.try = now.Add(min(checkAgain, c.settings.Interval))
		c.log.Warn("outbox cannot be checked", zap.Error(err))
	default:
		next.Report, next.Ended = report, now
		wait := c.settings.Interval
		if !report.OK {
			wait = min(wait, checkAgain)
		}
		c.try = now.Add(wait)
		next.Due = c.try
		c.tell(report)
	}
	c.result.Store(&next)
}

// look looks at what was written since the last check, and after one with faults
// at the same once more.
func (c *Checker) look(ctx context.Context, last *Report) (*Report, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, max(c.settings.Interval, leastTimeout), errTooLong)
	defer cancel()
	cfg := Config{
		Schema: c.schema, Slot: c.slot, Since: c.settings.Interval + overlap,
		Batch: quietBatch, Rest: quietRest, GoOn: c.leads,
	}
	if last != nil {
		cfg.Since = max(cfg.Since, time.Since(last.At)+overlap)
		if !last.OK {
			cfg.Since, cfg.From = 0, max(last.From, 1)
		}
	}
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(ctx, conn)
	report, err := c.run(ctx, conn, cfg)
	if err != nil && errors.Is(context.Cause(ctx), errTooLong) {
		return nil, errTooLong
	}
	return report, err
}

// errTooLong says that a check was given up.
var errTooLong = errors.New("a check takes longer than RELAY_VERIFY_INTERVAL: make that longer, or 0 and run `outbox-relay verify --since` yourself")

// closeTimeout bounds the farewell to the server.
const closeTimeout = 2 * time.Second

func closeQuietly(ctx context.Context, conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// tell logs what was found.
func (c *Checker) tell(r *Report) {
	facts := []zap.Field{
		zap.String("summary", r.Summary), zap.Int64("messages", r.Messages), zap.Float64("seconds", r.Seconds),
	}
	if r.OK {
		c.log.Info("outbox checked", facts...)
		return
	}
	ids := make([]int64, len(r.Examples))
	for i := range r.Examples {
		ids[i] = r.Examples[i].MessageID
	}
	c.log.Error("outbox has faults", append(facts, zap.Any("faults", r.Faults), zap.Int64s("message_ids", ids),
		zap.String("hint", "`outbox-relay explain ID` has the life of a message, `outbox-relay verify` says what to do"))...)
}
