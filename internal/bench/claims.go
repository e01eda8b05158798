package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/schema"
)

// ClaimsConfig says how claims are taken while a relay removes expired ones.
type ClaimsConfig struct {
	// Program is the outbox-relay whose retention is measured; empty means this
	// program.
	Program string
	// Workers is how many connections take claims, one after another.
	Workers int
	// Expired is how many expired claims the relay removes in each round.
	Expired int
	// Alone is how long the workers are measured in each round while nothing is
	// removed.
	Alone time.Duration
	// Rounds is how often both are measured, in turn.
	Rounds int
	// Least is the budget for the speed during the removal, as a part of the
	// speed without it.
	Least float64
	// PostgresVersion is a major version; empty means any that is found.
	PostgresVersion string
	// Progress gets a line for each step; it may be nil.
	Progress io.Writer
}

// Validate reports every setting with which nothing could be measured.
func (c *ClaimsConfig) Validate() error {
	var errs []error
	for name, n := range map[string]int{"workers": c.Workers, "expired": c.Expired, "rounds": c.Rounds} {
		if n < 1 {
			errs = append(errs, fmt.Errorf("%s is %d, want at least 1", name, n))
		}
	}
	if least := time.Second; c.Alone < least {
		errs = append(errs, fmt.Errorf("alone is %s, want at least %s", c.Alone, least))
	}
	return errors.Join(errs...)
}

const (
	claimConsumer  = "bench"
	claimRetention = 30 * 24 * time.Hour
	// claimRepeats: every tenth claim is one of an event that was claimed before.
	claimRepeats = 10
	// claimWarmUp is how long the workers run before they are measured.
	claimWarmUp = 2 * time.Second
)

// claiming is a measurement under way.
type claiming struct {
	cfg     ClaimsConfig
	rig     *rig
	workers []*claimer

	alone, during claimFigures
	ratio, slower figures
	removed       figures // claims a second
}

// claimFigures are those of one side.
type claimFigures struct{ rate, p50, p99 figures }

func (f *claimFigures) add(s span) {
	f.rate = append(f.rate, s.Rate)
	f.p50 = append(f.p50, s.p50)
	f.p99 = append(f.p99, s.p99)
}

// span is how the workers did for some time. The times are in milliseconds.
type span struct {
	Speed

	p50, p99 float64
}

// RunClaims measures claims with and without the removal of expired ones.
func RunClaims(ctx context.Context, cfg ClaimsConfig) (*Report, error) {
	c := &claiming{cfg: cfg}
	var err error
	// Settings as a server has them that nobody tuned: what a removal leaves to
	// autovacuum is a part of what it costs.
	if c.rig, err = startRig(ctx, Config{PostgresVersion: cfg.PostgresVersion, Progress: cfg.Progress, Log: zap.NewNop()}, nil); err != nil {
		return nil, err
	}
	defer c.rig.close()
	if err := c.grant(ctx); err != nil {
		return nil, err
	}
	for range cfg.Workers {
		conn, err := pgx.Connect(ctx, c.rig.url)
		if err != nil {
			return nil, err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		c.workers = append(c.workers, &claimer{conn: conn})
	}
	for round := range cfg.Rounds {
		if err := c.round(ctx, round); err != nil {
			return nil, err
		}
	}
	report := newReport(c.rig, cfg.Rounds)
	report.Workload = fmt.Sprintf("%d workers, %d expired claims", cfg.Workers, cfg.Expired)
	report.Results = c.results()
	return report, nil
}

// grant makes the role of the relay.
func (c *claiming) grant(ctx context.Context) error {
	var sql strings.Builder
	if err := schema.Grants(&sql, schema.GrantsConfig{Schema: "outbox", Database: "postgres", Relay: schema.DefaultRelay}); err != nil {
		return err
	}
	return c.rig.conn.PgConn().Exec(ctx, sql.String()).Close()
}

// round measures the workers beside a relay that may not remove expired claims,
// and then beside one that does. Each side begins with a checkpoint, after which
// whole pages are written.
func (c *claiming) round(ctx context.Context, round int) error {
	if err := c.expire(ctx, round); err != nil {
		return err
	}
	alone, _, err := c.beside(ctx, `revoke delete on outbox.claims from outbox_relay`, func(ctx context.Context) error {
		return pause(ctx, c.cfg.Alone)
	})
	if err != nil {
		return err
	}
	if left, err := c.left(ctx, round); err != nil || !left {
		return errors.Join(err, errors.New("expired claims were removed without the right to do so"))
	}
	during, took, err := c.beside(ctx, `grant delete on outbox.claims to outbox_relay`, func(ctx context.Context) error {
		return c.awaitRemoval(ctx, round)
	})
	if err != nil {
		return err
	}
	c.alone.add(alone)
	c.during.add(during)
	c.ratio = append(c.ratio, during.PerCore/alone.PerCore)
	c.slower = append(c.slower, during.p99/alone.p99)
	c.removed = append(c.removed, float64(c.cfg.Expired)/took.Seconds())
	c.rig.say("claims %d/%d: %.0f/s, %.0f/s while %d are removed in %.0f s; p50 %.1f and %.1f ms, p99 %.1f and %.1f ms",
		round+1, c.cfg.Rounds, alone.Rate, during.Rate, c.cfg.Expired, took.Seconds(), alone.p50, during.p50, alone.p99, during.p99)
	return nil
}

// expire makes the expired claims of a round.
func (c *claiming) expire(ctx context.Context, round int) error {
	c.rig.say("writing %d expired claims", c.cfg.Expired)
	return c.rig.exec(ctx,
		fmt.Sprintf(`insert into outbox.claims (consumer, event_id, expires_at)
			select '%s', md5(%d || ' ' || i), now() - interval '1 day' + i * interval '1 microsecond'
			from generate_series(1, %d) i`, claimConsumer, round, c.cfg.Expired),
		`vacuum analyze outbox.claims`)
}

// beside measures the workers beside a relay with this right, from its start until
// await returns.
func (c *claiming) beside(ctx context.Context, right string, await func(context.Context) error) (s span, took time.Duration, err error) {
	if err := c.rig.exec(ctx, right, `checkpoint`); err != nil {
		return s, 0, err
	}
	s, err = c.measure(ctx, func(ctx context.Context) error {
		began := time.Now()
		moving, err := startProgram(ctx, c.cfg.Program, map[string]string{
			"DATABASE_URL": strings.Replace(c.rig.url, "//postgres@", "//"+schema.DefaultRelay+"@", 1), "RELAY_SLOT": "bench_claims",
			"INFRAI_API_KEY": "bench", "INFRAI_BASE_URL": "http://127.0.0.1:1",
		}, nil, false, "run")
		if err != nil {
			return err
		}
		defer moving.stop()
		err = await(ctx)
		took = time.Since(began)
		return err
	})
	return s, took, err
}

// awaitRemoval waits until the claims of a round are removed.
func (c *claiming) awaitRemoval(ctx context.Context, round int) error {
	ctx, cancel := context.WithTimeout(ctx, graceful+time.Duration(c.cfg.Expired)*time.Millisecond)
	defer cancel()
	for {
		left, err := c.left(ctx, round)
		if err != nil || !left {
			return err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("expired claims are not removed: %w", err)
		}
	}
}

// left reports whether the last of the expired claims of a round is there. They
// go in the order of their expiry.
func (c *claiming) left(ctx context.Context, round int) (left bool, err error) {
	err = c.rig.conn.QueryRow(ctx, `select exists (select from outbox.claims where consumer = $1 and event_id = md5($2 || ' ' || $3))`,
		claimConsumer, fmt.Sprint(round), fmt.Sprint(c.cfg.Expired)).Scan(&left)
	return left, err
}

// measure lets the workers claim until act has ended.
func (c *claiming) measure(ctx context.Context, act func(context.Context) error) (s span, err error) {
	var began time.Time
	var speed meter
	enough := make(chan struct{})
	group, running := errgroup.WithContext(ctx)
	for _, w := range c.workers {
		group.Go(func() error { return w.run(running, enough) })
	}
	group.Go(func() (err error) {
		defer close(enough)
		if err := pause(running, claimWarmUp); err != nil {
			return err
		}
		began = time.Now()
		if speed, err = newMeter(0); err != nil {
			return err
		}
		return act(running)
	})
	if err := group.Wait(); err != nil {
		return s, err
	}
	var took []int64
	for _, w := range c.workers {
		took = append(took, w.since(began)...)
	}
	s.Speed, err = speed.read(len(took))
	s.p50, s.p99 = percentile(took, 50), percentile(took, 99)
	return s, err
}

// claimer is a worker: one connection that takes one claim after another, each in
// a transaction of its own.
type claimer struct {
	conn   *pgx.Conn
	last   string // the event that was claimed last
	claims []timed
}

// timed is when a claim began, and the microseconds until its commit.
type timed struct {
	at   time.Time
	took int64
}

// run claims until enough is closed.
func (w *claimer) run(ctx context.Context, enough <-chan struct{}) error {
	w.claims = w.claims[:0]
	for n := 1; ; n++ {
		select {
		case <-enough:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		repeat := n%claimRepeats == 0
		if !repeat {
			w.last = fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
		}
		began := time.Now()
		won, err := w.claim(ctx, w.last)
		if err != nil {
			return err
		}
		if won == repeat {
			return fmt.Errorf("claim %s: won is %t", w.last, won)
		}
		w.claims = append(w.claims, timed{began, time.Since(began).Microseconds()})
	}
}

func (w *claimer) claim(ctx context.Context, event string) (won bool, err error) {
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		return false, err
	}
	if won, err = outbox.Claim(ctx, tx, claimConsumer, event, claimRetention); err != nil {
		return false, err
	}
	return won, tx.Commit(ctx)
}

// since are the times of the claims that began after a moment.
func (w *claimer) since(moment time.Time) (took []int64) {
	for _, c := range w.claims {
		if c.at.After(moment) {
			took = append(took, c.took)
		}
	}
	return took
}

func (c *claiming) results() []Result {
	alone, during := c.alone, c.during
	return []Result{
		alone.rate.result("claims.alone", "claims, each in a transaction of its own", "claims/s"),
		during.rate.result("claims.removal", "the same while expired claims are removed", "claims/s"),
		c.ratio.result("claims.ratio", "while they are removed / while they are not, for each core that others left", "ratio").atLeast(c.cfg.Least),
		alone.p50.result("claims.p50_alone", "begin to committed, median", "ms"),
		during.p50.result("claims.p50", "the same during the removal", "ms"),
		alone.p99.result("claims.p99_alone", "begin to committed, 99th percentile", "ms"),
		during.p99.result("claims.p99", "the same during the removal", "ms"),
		c.slower.result("claims.p99_ratio", "99th percentile during the removal / without", "ratio"),
		c.removed.result("claims.removed", "expired claims that were removed meanwhile", "claims/s"),
	}
}
