package relay

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/vital"
)

// worker publishes one message at a time.
type worker struct {
	wake  chan struct{} // capacity 1: there may be a message
	pulse vital.Pulse   // busy while a request is under way
}

// work publishes until intake ends, whatever ended it. A request that is under
// way then runs on: its context is work, which outlives intake by the drain
// timeout.
func (s *session) work(intake, work context.Context, w *worker, lose context.CancelCauseFunc) {
	w.wake = make(chan struct{}, 1)
	m := s.router.take(time.Now(), w)
	for {
		for m == nil {
			select {
			case <-w.wake:
			case <-intake.Done():
				return
			}
			m = s.router.take(time.Now(), w)
		}
		if s.condemned(m) {
			m = s.condemn(w, m)
			continue
		}
		if !s.writeDown(intake, m, lose) || intake.Err() != nil || s.trust(intake) != nil {
			return // not sent; the message is read again
		}
		began := time.Now()
		w.pulse.Begin(began)
		receipt, err := s.relay.publisher.Publish(work, m.row)
		ended := time.Now()
		w.pulse.End(ended)
		s.relay.counts.request(m, began, ended, err)
		if err != nil && work.Err() != nil {
			return // nobody knows; the message is read again
		}
		m = s.settle(w, m, receipt, err)
	}
}

// settle brings a message back to the router with what the publisher said, and
// returns the next one.
func (s *session) settle(w *worker, m *message, receipt Receipt, err error) (next *message) {
	var failure *PublishError
	if err != nil {
		failure = asPublishError(err)
		s.logFailure(m, failure)
	}
	return s.router.finish(time.Now(), w, m, receipt, failure)
}

func (s *session) logFailure(m *message, failure *PublishError) {
	log := s.log.Debug
	if failure.Class == Refused {
		log = s.log.Warn
	}
	log("publish failed",
		zap.Int64(keyMessageID, m.row.ID), zap.String(keyKey, m.row.Key), zap.String(keyQueue, m.row.Queue),
		zap.Int(keyAttempt, m.attempts+1), zap.Stringer(keyReason, failure.Class), zap.Int(keyStatus, failure.Status),
		zap.String("error", failure.beside(failure.Class.String())))
}
