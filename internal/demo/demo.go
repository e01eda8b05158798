package demo

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// demo is one run.
type demo struct {
	cfg   Config
	talk  *talk
	stage *stage
	queue *queueClient

	opened  time.Time
	version string // of Postgres
	book    book
	journal *journal
	tally   tally
	kills   atomic.Int64
}

// Run plays the demo. The error is nil exactly if there is an account and it
// holds; an account that does not hold comes with the error. It takes the load
// and about ten seconds.
func Run(ctx context.Context, cfg Config) (*Account, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s, err := newStage(cfg.Program)
	if err != nil {
		return nil, err
	}
	d := &demo{cfg: cfg, stage: s, talk: &talk{out: cfg.Talk, live: cfg.Live, paint: paint(cfg.Colour)}}
	account, err := d.run(ctx)
	stopped := ctx.Err() != nil
	logs, closing := s.close(err != nil && !stopped)
	switch {
	case stopped:
		return nil, errors.Join(ErrStopped, closing)
	case logs != "":
		err = &LogsError{err, logs}
	}
	return account, errors.Join(err, closing)
}

func (d *demo) run(ctx context.Context) (*Account, error) {
	d.talk.headline("Outbox Relay: a shop, a queue that loses answers, and a relay that gets killed")
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
	defer d.queue.close()
	account, err := d.play(ctx)
	d.talk.close()
	if err != nil {
		return account, err
	}
	d.event("everything has arrived")
	if err := d.stage.stopRelay(ctx); err != nil {
		return account, err
	}
	d.event("relay stopped on request")
	return account, nil
}

// prepare builds the stage, part by part.
func (d *demo) prepare(ctx context.Context) (err error) {
	if err := d.stage.startPostgres(ctx); err != nil {
		return err
	}
	if d.version, err = d.stage.postgresVersion(ctx); err != nil {
		return err
	}
	d.talk.fact("postgres", "%s, throwaway, wal_level logical, %s", d.version, d.stage.cluster.Bin("postgres"))

	if err := d.stage.startQueue(ctx, ordersQueue, lettersQueue); err != nil {
		return err
	}
	d.queue = newQueueClient(d.stage.queueURL)
	d.journal = &journal{queue: d.queue}
	if err := d.queue.misbehave(ctx, d.faults()...); err != nil {
		return err
	}
	d.talk.fact("queue", "emulator, process %d, loses %.0f %% of its answers, says 429 now and then", d.stage.queue.PID(), 100*lostShare)

	if err := d.stage.migrate(ctx); err != nil {
		return err
	}
	if err := openShop(ctx, d.stage.databaseURL); err != nil {
		return err
	}
	if err := d.stage.startRelay(); err != nil {
		return err
	}
	if err := d.stage.awaitRelay(ctx); err != nil {
		return err
	}
	d.talk.fact("relay", "process %d, slot %s", d.stage.relay.PID(), slot)
	d.talk.fact("shop", "%d tills, %d customers, %d sales a second for %.0f s, seed %d\n",
		tills, tills*customersPerTill, salesPerSecond, d.cfg.Load.Seconds(), d.cfg.Seed)
	return nil
}

// faults are what the queue does to publishes.
func (d *demo) faults() []emulator.Fault {
	limited := emulator.Fault{Route: "queue.publish", Status: http.StatusTooManyRequests, Code: "RATE_LIMITED"}
	soon, later := limited, limited
	soon.RetryAfter, soon.Skip, soon.Every = "0.2", 150, 600
	later.RetryAfter, later.Skip, later.Every = "1", 450, 1200
	return []emulator.Fault{
		{Route: "queue.publish", Probability: lostShare, Seed: d.cfg.Seed, Store: true, Cut: emulator.CutClose},
		soon, later,
	}
}

func (d *demo) event(format string, args ...any) {
	d.talk.event(time.Since(d.opened), format, args...)
}
