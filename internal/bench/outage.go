package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// OutageConfig says how a queue dies and what goes on meanwhile.
type OutageConfig struct {
	// Program is the outbox-relay to measure; empty means this program.
	Program string
	// Down is how long the queue is down: the first half of it answers 503, in
	// the second every connection is refused.
	Down time.Duration
	// Rate is the messages that are committed each second, all the time, and
	// Transaction how many of them are one transaction.
	Rate, Transaction int
	// SideRate is the messages that are committed each second, one in a
	// transaction, for a second queue of the same endpoint, which answers 503
	// never; 0 is none.
	SideRate int
	// Keys is the number of ordering keys that every second message has.
	Keys int
	// Payload is the size of a message's payload in bytes.
	Payload int
	// Burst is the size of the backlog in the WAL from which the speed of the
	// live path is measured.
	Burst int
	// Steady is how long the life before and after the outage is watched.
	Steady time.Duration
	// LeastDrain is the budget for the speed of the drain, as a part of the
	// speed of the live path.
	LeastDrain float64
	// PostgresVersion is a major version; empty means any that is found.
	PostgresVersion string
	// Progress gets a line for each step, RelayLog what the relay logs. Both may
	// be nil.
	Progress, RelayLog io.Writer
}

// Validate reports every setting with which nothing could be measured.
func (c *OutageConfig) Validate() error {
	var errs []error
	if c.Transaction < 1 {
		errs = append(errs, fmt.Errorf("transaction is %d, want at least 1", c.Transaction))
	}
	for name, n := range map[string]int{"rate": c.Rate, "keys": c.Keys, "burst": c.Burst} {
		if n < queueWriters {
			errs = append(errs, fmt.Errorf("%s is %d, want at least %d", name, n, queueWriters))
		}
	}
	if least := 4 * time.Second; c.Down < least {
		errs = append(errs, fmt.Errorf("down is %s, want at least %s", c.Down, least))
	}
	if least := 2 * time.Second; c.Steady < least {
		errs = append(errs, fmt.Errorf("steady is %s, want at least %s", c.Steady, least))
	}
	return errors.Join(errs...)
}

const (
	mainQueue = "main" // the one that dies
	sideQueue = "side" // answers 503 never

	outageSlot = "bench_outage"
	// queueWriters is how many connections write to the queue that dies.
	queueWriters = 8
	// graceful is how long what must happen soon may take on a busy machine.
	graceful = 2 * time.Minute
)

// Phases of the measurement.
const (
	phaseBefore   = "before"
	phaseLimit    = "full speed, before"
	phaseFailing  = "down, answers 503"
	phaseRefusing = "down, refuses connections"
	phaseDrain    = "drain"
	phaseAfter    = "after"
	phaseLimit2   = "full speed, after"
)

// outage is a measurement under way.
type outage struct {
	cfg       OutageConfig
	rig       *rig
	queue     *remoteQueue
	relay     *program
	committed *tally
	began     time.Time
	fill      string
	bursts    int

	mu      sync.Mutex
	phases  []Phase
	samples []Sample
}

// RunOutage lets a queue die and come back while messages keep coming.
func RunOutage(ctx context.Context, cfg OutageConfig) (*OutageReport, error) {
	o := &outage{cfg: cfg, committed: newTally(), fill: filler(max(0, cfg.Payload-len(`{"at": 1234567890123456, "fill": ""}`)))}
	var err error
	// Settings as a server has them that nobody tuned.
	o.rig, err = startRig(ctx, Config{PostgresVersion: cfg.PostgresVersion, Progress: cfg.Progress, Log: zap.NewNop()}, nil)
	if err != nil {
		return nil, err
	}
	defer o.rig.close()
	if o.queue, err = startQueue(ctx, cfg.Program); err != nil {
		return nil, err
	}
	defer o.queue.stop()
	o.relay, err = startProgram(ctx, cfg.Program, map[string]string{
		"DATABASE_URL": o.rig.url, "RELAY_SLOT": outageSlot, "INFRAI_API_KEY": "bench", "INFRAI_BASE_URL": o.queue.url,
		"RELAY_LOG_LEVEL": "info", "RELAY_LOG_FORMAT": "json",
	}, cfg.RelayLog, false, "run")
	if err != nil {
		return nil, err
	}
	defer o.relay.stop()
	return o.measure(ctx)
}

// measure lets the writers and the clock run while the queue lives and dies.
func (o *outage) measure(ctx context.Context) (*OutageReport, error) {
	if err := o.await(ctx, "the slot", o.slotIsRead); err != nil {
		return nil, err
	}
	o.began = time.Now()
	enough, done := make(chan struct{}), make(chan struct{})
	all, running := errgroup.WithContext(ctx)
	var writing sync.WaitGroup
	for _, f := range o.flows() {
		writing.Add(1)
		all.Go(func() error {
			defer writing.Done()
			return f.run(running, o.rig.url, o.committed, enough)
		})
	}
	all.Go(func() error { return o.sample(running, done) })
	report := &OutageReport{}
	all.Go(func() error {
		defer close(done)
		if err := o.story(running, report); err != nil {
			return err
		}
		close(enough)
		writing.Wait()
		return o.await(running, "every message to be accepted", o.allAccepted)
	})
	if err := all.Wait(); err != nil {
		return nil, err
	}
	return report, o.conclude(ctx, report)
}

// flows are the messages that keep coming.
func (o *outage) flows() []flow {
	flows := []flow{
		{queue: mainQueue, group: mainQueue, keys: o.cfg.Keys, free: true, rate: o.cfg.Rate, each: o.cfg.Transaction, writers: queueWriters, fill: o.fill},
	}
	if o.cfg.SideRate > 0 {
		flows = append(flows, flow{queue: sideQueue, group: sideQueue, keys: 10, free: true, timed: true, rate: o.cfg.SideRate, each: 1, writers: 2, fill: o.fill})
	}
	return flows
}

// story is what happens to the queue.
func (o *outage) story(ctx context.Context, report *OutageReport) (err error) {
	if err := o.await(ctx, "the first message to be accepted", o.anyAccepted); err != nil {
		return err
	}
	if err := o.live(ctx, phaseBefore); err != nil {
		return err
	}
	if report.LimitBefore, err = o.fullSpeed(ctx, phaseLimit); err != nil {
		return err
	}
	// A checkpoint lets the slot give up what the burst has written.
	if err := o.rig.exec(ctx, `checkpoint`); err != nil {
		return err
	}
	if err := o.await(ctx, "the slot to be close to the end of the WAL", o.slotIsClose); err != nil {
		return err
	}
	for _, down := range []struct {
		phase string
		mood  Mood
	}{{phaseFailing, Failing}, {phaseRefusing, Refusing}} {
		o.enter(down.phase)
		if err := o.queue.set(ctx, down.mood); err != nil {
			return err
		}
		if err := pause(ctx, o.cfg.Down/2); err != nil {
			return err
		}
	}
	if err := o.drain(ctx, report); err != nil {
		return err
	}
	if err := o.live(ctx, phaseAfter); err != nil {
		return err
	}
	report.LimitAfter, err = o.fullSpeed(ctx, phaseLimit2)
	return err
}

// live watches messages come and go.
func (o *outage) live(ctx context.Context, phase string) error {
	o.enter(phase)
	return pause(ctx, o.cfg.Steady)
}

// fullSpeed measures how many messages a second the live path takes when there
// are always more: from the moment when a burst is written, so that the writing
// costs nothing any more, to its end; all of a burst of which little is left by
// then. The other messages keep coming, as they do during the drain.
func (o *outage) fullSpeed(ctx context.Context, phase string) (s Speed, err error) {
	o.enter(phase)
	o.bursts++
	f := flow{queue: mainQueue, group: fmt.Sprintf("burst%d", o.bursts), keys: o.cfg.Keys, fill: o.fill}
	before, err := o.queue.counts(ctx)
	if err != nil {
		return s, err
	}
	began, err := newMeter(before.total())
	if err != nil {
		return s, err
	}
	if err := f.burst(ctx, o.rig.url, o.committed, o.cfg.Burst); err != nil {
		return s, err
	}
	written, err := o.queue.counts(ctx)
	if err != nil {
		return s, err
	}
	if left := o.cfg.Burst - written.Accepted[f.group]; left > o.cfg.Burst/2 {
		if began, err = newMeter(written.total()); err != nil {
			return s, err
		}
	}
	var after Counts
	err = o.await(ctx, "a burst to be accepted", func(ctx context.Context) (bool, error) {
		after, err = o.queue.counts(ctx)
		return after.Accepted[f.group] == o.cfg.Burst, err
	})
	if err != nil {
		return s, err
	}
	s, err = began.read(after.total())
	o.rig.say("%s: %.0f messages/s, %.0f for each core", phase, s.Rate, s.PerCore)
	return s, err
}

// drain lets the queue come back and waits until nothing is deferred any more.
func (o *outage) drain(ctx context.Context, report *OutageReport) error {
	o.enter(phaseDrain)
	before, err := o.queue.counts(ctx)
	if err != nil {
		return err
	}
	report.Backlog = o.committed.total() - before.total()
	back := time.Now()
	if err := o.queue.set(ctx, Up); err != nil {
		return err
	}
	var first Counts
	err = o.await(ctx, "the relay to notice that the queue is back", func(ctx context.Context) (bool, error) {
		first, err = o.queue.counts(ctx)
		return first.Accepted[mainQueue] > before.Accepted[mainQueue], err
	})
	if err != nil {
		return err
	}
	noticed := time.Now()
	began, err := newMeter(first.total())
	if err != nil {
		return err
	}
	var last Counts
	patience := graceful + 3*o.cfg.Down
	err = o.awaitFor(ctx, patience, "the drain", func(ctx context.Context) (drained bool, err error) {
		last, drained, err = o.drained(ctx)
		return drained, err
	})
	if err != nil {
		return errors.Join(err, o.whatIsLeft(ctx))
	}
	report.Noticed, report.Drained = noticed.Sub(back).Seconds(), time.Since(back).Seconds()
	report.Drain, err = began.read(last.total())
	o.rig.say("drain: noticed after %.1f s, %d messages in %.1f s, %.0f messages/s with the new ones, %.0f for each core",
		report.Noticed, report.Backlog, report.Drained, report.Drain.Rate, report.Drain.PerCore)
	return err
}

// drained reports whether the relay has caught up and the table is empty.
func (o *outage) drained(ctx context.Context) (c Counts, drained bool, err error) {
	if c, err = o.queue.counts(ctx); err != nil {
		return c, false, err
	}
	if o.committed.total()-c.total() > o.cfg.Rate/2 {
		return c, false, nil
	}
	err = o.rig.conn.QueryRow(ctx, `select not exists (select from outbox.deferred)`).Scan(&drained)
	return c, drained, err
}

// whatIsLeft tells what an unfinished drain has left.
func (o *outage) whatIsLeft(ctx context.Context) error {
	rows, err := o.rig.conn.Query(ctx, `
		select 'deferred ' || reason, count(*), min(attempts), max(attempts), min(message_id) from outbox.deferred group by reason
		union all select 'dead ' || reason, count(*), min(attempts), max(attempts), min(message_id) from outbox.dead_letters group by reason`)
	if err != nil {
		return err
	}
	var where string
	var n, least, most, id int64
	var errs []error
	_, err = pgx.ForEachRow(rows, []any{&where, &n, &least, &most, &id}, func() error {
		errs = append(errs, fmt.Errorf("%d %s, %d to %d attempts, such as message %d", n, where, least, most, id))
		return nil
	})
	counts, countErr := o.queue.counts(ctx)
	errs = append(errs, err, countErr, fmt.Errorf("%d committed, %d accepted", o.committed.total(), counts.total()))
	return errors.Join(errs...)
}

func (o *outage) slotIsRead(ctx context.Context) (read bool, err error) {
	err = o.rig.conn.QueryRow(ctx, `select exists (select from pg_replication_slots where slot_name = $1 and active)`, outageSlot).Scan(&read)
	return read, err
}

func (o *outage) slotIsClose(ctx context.Context) (near bool, err error) {
	err = o.rig.conn.QueryRow(ctx, `select pg_current_wal_lsn() - restart_lsn < 16 * 1024 * 1024 from pg_replication_slots where slot_name = $1`,
		outageSlot).Scan(&near)
	return near, err
}

func (o *outage) anyAccepted(ctx context.Context) (bool, error) {
	c, err := o.queue.counts(ctx)
	return c.total() > 0, err
}

func (o *outage) allAccepted(ctx context.Context) (bool, error) {
	c, err := o.queue.counts(ctx)
	return c.total() >= o.committed.total(), err
}

// await asks until something holds.
func (o *outage) await(ctx context.Context, what string, holds func(context.Context) (bool, error)) error {
	return o.awaitFor(ctx, graceful, what, holds)
}

func (o *outage) awaitFor(ctx context.Context, patience time.Duration, what string, holds func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("not within "+patience.String()))
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := holds(ctx)
		if ok {
			return nil
		}
		if err == nil {
			select {
			case <-tick.C:
				continue
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("wait for %s: %w", what, err)
	}
}

// pause waits, or returns why it did not.
func pause(ctx context.Context, d time.Duration) error {
	if !waits.Sleep(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}
