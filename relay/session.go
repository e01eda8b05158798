package relay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/vital"
	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// session is the time for which this process holds the stream: one epoch.
type session struct {
	relay  *Relay
	log    *zap.Logger
	router *router
	writer *writer

	lifted chan struct{} // closed unless the session is careful

	workers []worker
	pulses  struct{ intake, clock, loader, settings, sweep, retention vital.Pulse }
	seen    atomic.Pointer[RouterState] // the last look at the router
	sweeps  sweeps
	moved   bool // somebody else had moved the slot when the session began

	recorded string // the confirmed flush on record when the session began

	useful  bool   // outcomes became durable; the writer's until it has ended
	next    uint64 // the number of the next message of the stream
	horizon int64  // ids above this one had no outcome when the epoch began
	unsent  *int64 // no relay had sent this message or a later one when the epoch began; nil: nobody knows
}

// runSession moves messages while the open stream lasts and gives the stream
// back. It returns whether any got an outcome, and why the stream was lost; after
// a stop the error means nothing.
func (r *Relay) runSession(intake context.Context) (useful bool, err error) {
	own, lose := context.WithCancelCause(context.WithoutCancel(intake))
	defer lose(nil)
	r.enter(StepPreparing, nil)
	s, err := r.begin(intake)
	switch {
	case err == nil:
		r.sessions.Add(1)
		r.session.Store(s)
		r.enter(stepRunning, nil)
		// Who has read this line finds the relay active.
		s.log.Info("session began", zap.String(keyPosition, r.source.StartPosition()), zap.String(keyRecorded, s.recorded))
		err = s.run(intake, own, lose)
		r.keep(s.writer.left())
	case over(intake):
		err = nil // a stop in the middle of the beginning
	}
	r.enter(StepEnding, err)
	r.end(s, err)
	r.session.Store(nil)
	return s != nil && s.useful, err
}

// begin raises the epoch, and finds what a new slot cannot show.
func (r *Relay) begin(ctx context.Context) (*session, error) {
	var found tenure
	err := r.retry(ctx, func() (err error) {
		found, err = r.writing.takeOver(ctx, r.cfg.Holder, r.cfg.Version, r.source.StartPosition(), r.source.Created())
		return err
	})
	if err != nil {
		return nil, err
	}
	epoch := found.epoch
	log := r.log.With(zap.Int64(keyEpoch, epoch))
	if found.moved {
		log.Error("slot was moved by somebody else, the sweep looks for messages that the stream will not show",
			zap.String(keyRecorded, found.recorded), zap.String(keyPosition, r.source.StartPosition()))
	}
	s := &session{relay: r, log: log, workers: make([]worker, r.cfg.MaxInFlight), moved: found.moved, recorded: found.recorded}
	s.writer = &writer{
		cfg: r.cfg, log: log, store: r.writing, epoch: epoch, counts: r.counts,
		position: r.source.Position, durable: s.durable, wake: make(chan struct{}, 1),
	}
	s.router = newRouter(r.cfg, log, s.writer.put)
	s.writer.room = s.router.room
	if err := s.countStart(ctx); err != nil {
		return s, err // it may have been counted
	}
	err = r.retry(ctx, func() (err error) {
		s.unsent, err = r.writing.takeUnsent(ctx, epoch)
		return err
	})
	if err != nil {
		return s, err
	}
	if !found.reconciled {
		if err := s.reconcile(ctx); err != nil {
			return s, err
		}
	}
	if err := s.look(ctx); err != nil {
		return s, err
	}
	return s, nil
}

// look reads what the tables say at the beginning: how far outcomes reach, which
// queues have deferred messages, and what operators want.
func (s *session) look(ctx context.Context) error {
	return s.relay.retry(ctx, func() error {
		horizon, err := s.relay.reading.horizon(ctx)
		if err != nil {
			return err
		}
		queues, err := s.relay.reading.deferredQueues(ctx)
		if err != nil {
			return err
		}
		settings, err := s.firstSettings(ctx)
		if err != nil {
			return err
		}
		if err := s.relay.forgetMarked(ctx); err != nil {
			return err
		}
		s.horizon = horizon
		s.router.apply(time.Now(), settings)
		s.router.holdQueues(queues)
		return nil
	})
}

func (s *session) reconcile(ctx context.Context) error {
	if s.relay.cfg.Polls {
		return nil
	}
	return s.relay.retry(ctx, func() error {
		began := time.Now()
		if err := s.relay.writing.awaitVisible(ctx); err != nil {
			return err
		}
		found, err := s.relay.writing.reconcile(ctx, s.writer.epoch, s.relay.source.StartPosition())
		if err == nil {
			s.log.Info("reconciled", zap.Int64(keyMessages, found), zap.Duration(keyElapsed, time.Since(began)))
		}
		return classifyWrite(err)
	})
}

// retry calls do until it goes through, ctx ends, the epoch is lost or the error is
// permanent.
func (r *Relay) retry(ctx context.Context, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || isPermanent(err) || errors.Is(err, errElsewhere) || errors.Is(err, ErrEpochLost) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if attempt == 1 {
			r.log.Warn("database failed", troubleFields(err)...)
		}
		if !waits.Sleep(ctx, backoff(attempt, 50*time.Millisecond, 2*time.Second)) {
			return ctx.Err()
		}
	}
}

// run moves messages until intake or own ends. The order of its lines is the
// order of a stop: intake, requests in flight, outcomes.
func (s *session) run(intake, own context.Context, lose context.CancelCauseFunc) error {
	work, stopWork := grace(intake, own, s.relay.cfg.DrainTimeout)
	defer stopWork()
	write, stopWrite := grace(intake, own, s.relay.cfg.DrainTimeout+closeTimeout)
	defer stopWrite()
	read, stopRead := context.WithCancel(intake)
	defer stopRead()
	defer context.AfterFunc(own, stopRead)()

	var workers, writing, keeping sync.WaitGroup
	drained := make(chan struct{})
	keeping.Go(func() { s.keepTime(own) })
	for _, loop := range []func(context.Context) error{s.loadAll, s.followSettings, s.sweepAll, s.retainAll, s.survive} {
		keeping.Go(func() {
			if err := loop(read); err != nil {
				lose(err)
			}
		})
	}
	writing.Go(func() {
		if err := s.writer.run(write, drained); err != nil {
			lose(err)
		}
	})
	for n := range s.workers {
		workers.Go(func() {
			if n == 0 || s.join(read) {
				s.work(read, work, &s.workers[n], lose)
			}
		})
	}

	err := s.feed(read)
	s.relay.enter(StepEnding, err)
	if read.Err() == nil { // the stream ended; nobody asked for it
		lose(err)
		stopRead()
	}
	inFlight := s.router.stop()
	s.log.Debug("draining", zap.Int(keyMessages, inFlight))
	workers.Wait()
	close(drained)
	writing.Wait() // own ends only after this: the last outcomes are written on it
	cause := context.Cause(own)
	lose(nil)
	keeping.Wait()
	return cause
}

// feed takes in the messages of the stream.
func (s *session) feed(ctx context.Context) error {
	for {
		rows, err := s.relay.source.Next(ctx)
		if err != nil {
			return err
		}
		s.pulses.intake.Begin(time.Now())
		s.relay.counts.received.Add(uint64(len(rows)))
		batch := make([]message, len(rows))
		for i := range rows {
			batch[i].row = &rows[i]
			batch[i].number = s.next
			s.next++
		}
		if s.mayBeKnown(batch) {
			if batch, err = s.guard(ctx, batch); err != nil {
				return err
			}
		}
		if err := s.takeIn(ctx, batch); err != nil {
			return err
		}
		s.pulses.intake.End(time.Now())
	}
}

// takeIn waits for room in the window and gives messages to the router. It
// also waits while outcomes cannot be written: what is not marked is sent
// again after a crash, and that should be little.
func (s *session) takeIn(ctx context.Context, batch []message) error {
	for s.router.full() || s.writer.failing.Load() {
		s.pulses.intake.End(time.Now())
		select {
		case <-s.router.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.router.add(time.Now(), batch)
	return nil
}

// durable is called when outcomes are written.
func (s *session) durable(batch []*outcome) {
	s.useful = true
	s.relay.totals.count(time.Now(), batch)
	s.relay.counts.outcomes(batch)
	numbers := make([]uint64, 0, len(batch))
	for _, o := range batch {
		if !o.message.cached {
			numbers = append(numbers, o.message.number)
		}
		s.logOutcome(o)
	}
	s.router.resolved(batch)
	s.relay.source.Resolve(numbers)
}

func (s *session) logOutcome(o *outcome) {
	if o.state == dead {
		s.log.Error("dead letter",
			zap.Int64(keyMessageID, o.row().ID), zap.String(keyKey, storable(o.row().Key)),
			zap.String(keyQueue, storable(o.row().Queue)), zap.Int(keyAttempt, o.message.attempts), zap.Error(o.failure))
	}
}

// trust waits until the server was heard recently enough to be sure that the
// slot is still ours. A process that was frozen wakes up here, with requests in
// its hands that another relay may have sent meanwhile.
func (s *session) trust(ctx context.Context) error {
	for time.Since(s.relay.source.LastWord()) >= s.relay.cfg.TrustWindow {
		if !waits.Sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// keepTime lets messages go when they are due.
func (s *session) keepTime(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.router.alarm:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		s.pulses.clock.Begin(now)
		wait := heartbeat
		if next, ok := s.router.tick(now); ok {
			wait = min(wait, next.Sub(now))
		}
		timer.Reset(wait)
		s.pulses.clock.End(time.Now())
	}
}

// heartbeat is how often the clock of the router comes by at least: a router that
// lets nobody in shows in the clock's pulse.
const heartbeat = time.Second

// end gives the stream back and records the last position.
func (r *Relay) end(s *session, cause error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.farewell)
	defer cancel()
	var err error
	if s != nil {
		err = s.takeBack(ctx, cause) // before another relay can have the stream
	}
	err = errors.Join(err, r.source.Close(ctx))
	if s == nil {
		return
	}
	position := r.source.Position()
	if !errors.Is(cause, ErrEpochLost) {
		err = errors.Join(err, r.writing.leave(ctx, s.writer.epoch, position), r.writing.noteUnsent(ctx, s.writer.epoch))
	}
	s.log.Info("session closed", zap.String(keyPosition, position),
		zap.Int(keyLeft, s.router.left()), zap.Error(err))
}

// grace returns a context that ends when own does, or d after intake does.
func grace(intake, own context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancelCause(own)
	stop := context.AfterFunc(intake, func() {
		time.AfterFunc(d, func() { cancel(ErrDrainTimeout) })
	})
	return work, func() { stop(); cancel(nil) }
}
