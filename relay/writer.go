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

// writer makes outcomes durable, many in one transaction, and then tells the
// source and the router. Publishing never waits for it.
type writer struct {
	cfg   Config
	log   *zap.Logger
	store *store
	epoch int64

	counts   *counts
	position func() string    // the confirmed flush, recorded with every batch
	durable  func([]*outcome) // called after each commit

	mu      sync.Mutex
	pending []*outcome

	wake    chan struct{} // capacity 1: there is an outcome
	room    chan struct{} // capacity 1: wakes the intake when writing works again
	failing atomic.Bool   // intake waits while this is set
	pulse   vital.Pulse
}

// put hands over an outcome.
func (w *writer) put(o *outcome) {
	w.mu.Lock()
	w.pending = append(w.pending, o)
	n := len(w.pending)
	w.mu.Unlock()
	if n == 1 || n == w.cfg.OutcomeBatch {
		signal(w.wake)
	}
}

// run writes until stop is closed and everything is written, or until own
// ends. It returns ErrEpochLost when another relay took over.
func (w *writer) run(own context.Context, stop <-chan struct{}) error {
	for {
		select {
		case <-w.wake:
			w.linger(own, stop)
			w.pulse.Begin(time.Now())
			if err := w.flush(own); err != nil {
				return err
			}
			w.pulse.End(time.Now())
		case <-stop:
			return w.flush(own)
		case <-own.Done():
			return context.Cause(own)
		}
	}
}

// linger waits a little for more outcomes, unless there are many already.
func (w *writer) linger(own context.Context, stop <-chan struct{}) {
	w.mu.Lock()
	n := len(w.pending)
	w.mu.Unlock()
	if n >= w.cfg.OutcomeBatch || w.cfg.OutcomeLinger == 0 {
		return
	}
	timer := time.NewTimer(w.cfg.OutcomeLinger)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.wake: // the batch is full
	case <-stop:
	case <-own.Done():
	}
}

// flush writes what is pending, and tries again until it is durable.
func (w *writer) flush(own context.Context) error {
	w.mu.Lock()
	batch := w.pending
	w.pending = nil
	w.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	err := w.insist(own, "write outcomes", func(ctx context.Context) error {
		began := time.Now()
		err := w.store.write(ctx, w.epoch, w.position(), batch)
		w.counts.write(len(batch), time.Since(began), err)
		return err
	})
	if err != nil {
		w.mu.Lock()
		w.pending = append(batch, w.pending...) // carried into the next session
		w.mu.Unlock()
		return err
	}
	w.durable(batch)
	return nil
}

// insist calls do until it goes through, own ends, or the epoch is lost.
func (w *writer) insist(own context.Context, what string, do func(context.Context) error) error {
	for attempt := 1; ; attempt++ {
		ctx, cancel := context.WithTimeout(own, writeTimeout)
		err := classifyWrite(do(ctx))
		cancel()
		w.pulse.Turn(time.Now())
		w.pulse.Note(time.Now(), err)
		if err == nil {
			if w.failing.Swap(false) {
				signal(w.room)
				w.log.Info("database is back", zap.Int(keyAttempt, attempt))
			}
			return nil
		}
		if own.Err() != nil {
			return context.Cause(own)
		}
		if errors.Is(err, ErrEpochLost) {
			return err
		}
		if !w.failing.Swap(true) {
			w.log.Warn(what+" failed", troubleFields(err)...)
		}
		if !waits.Sleep(own, backoff(attempt, 50*time.Millisecond, 2*time.Second)) {
			return context.Cause(own)
		}
	}
}

// writeTimeout bounds one transaction: a server that neither answers nor
// closes the connection must not hold the writer for ever.
const writeTimeout = 10 * time.Second

// waiting counts the outcomes that wait to be written.
func (w *writer) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pending)
}

// left returns the outcomes that are not durable.
func (w *writer) left() []*outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pending
}
