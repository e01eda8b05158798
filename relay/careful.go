package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// The crash-loop guard: a message that kills the process must not do so for
// ever. The slot shows it again at every start, with all others that were in
// flight, and nothing in memory outlives it to tell which one it was.
//
// So starts are counted in the relay's row. A start counts until its session has
// ended in order, or until the sessions of the process have lasted a minute:
// time alone shows that nothing kills it, because while messages keep coming
// some of them get their outcome before every death. The third start in a row
// that counts is careful: one request at a time goes out, over all queues, and
// each message is written down before its request. After three deaths with the
// same message written down it gets no fourth request: it becomes a dead letter.
// When a careful session has lasted its minute, all workers join in.
//
// A process that lives through the end of a session, a lost connection or a lost
// slot, did not start again, and if another relay has the slot by then, it takes
// its start off the record. In normal life all this costs two statements a
// start, and nothing a message.

const (
	carefulStarts = 3           // starts in a row that count, from which on one is careful
	deadlyCrashes = 3           // deaths in a row with a message written down, after which it is not sent
	survival      = time.Minute // what the sessions of a process must last
	redeemPause   = 500 * time.Millisecond
	reasonCrashed = "crashed_relay"
)

// errCrashes is why a message was set aside that gets no request.
var errCrashes = errors.New("the relay died while its request was under way")

// countStart puts a start on record before anything can die of it, and decides
// whether the session is careful. An epoch that follows the last one of this
// process is no start: nobody else had the stream, and the process lives.
func (s *session) countStart(ctx context.Context) error {
	r, epoch := s.relay, s.writer.epoch
	again := r.epoch > 0 && epoch == r.epoch+1
	r.epoch = epoch
	if !again {
		r.unproven = survival
	}
	s.lifted = make(chan struct{})
	if r.unproven == 0 {
		close(s.lifted)
		return nil
	}
	var found starts
	err := s.whileOurs(ctx, func() (ours bool, err error) {
		found, ours, err = r.writing.countStart(ctx, epoch, !again)
		return ours, err
	})
	if err != nil {
		return err
	}
	if !again {
		r.counted = true
		r.before = found // what this process writes down itself, it has lived through
	}
	if found.unclean < carefulStarts {
		close(s.lifted)
		return nil
	}
	s.log.Error("the relay has died again and again, one request goes out at a time",
		zap.Int("unclean_starts", found.unclean), zap.Int64(keyMessageID, r.before.suspect), zap.Int("deaths", r.before.deaths))
	return nil
}

// whileOurs runs a statement on our row until it goes through. It returns
// ErrEpochLost when the row is another's.
func (s *session) whileOurs(ctx context.Context, do func() (ours bool, err error)) error {
	var ours bool
	err := s.relay.retry(ctx, func() (err error) {
		ours, err = do()
		return err
	})
	if err == nil && !ours {
		return ErrEpochLost
	}
	return err
}

// careful reports whether one request at a time goes out.
func (s *session) careful() bool {
	select {
	case <-s.lifted:
		return false
	default:
		return true
	}
}

// join waits until more than one worker may send, and reports whether ctx lasted
// that long.
func (s *session) join(ctx context.Context) bool {
	select {
	case <-s.lifted:
		return true
	case <-ctx.Done():
		return false
	}
}

// condemned reports whether a message has killed the relay so often that it is
// not sent any more.
func (s *session) condemned(m *message) bool {
	before := &s.relay.before
	return s.careful() && before.deaths >= deadlyCrashes && before.suspect == m.row.ID
}

// condemn makes a dead letter of a message without another request, and returns
// the next one for w.
func (s *session) condemn(w *worker, m *message) (next *message) {
	now, before := time.Now(), &s.relay.before
	m.attempts += before.deaths // written down and lost: nobody else counted them
	if m.unknownAt.IsZero() {
		m.unknownAt = now // the queue may have it
	}
	failure := &PublishError{Class: Refused, Err: fmt.Errorf("%w, %d times in a row", errCrashes, before.deaths)}
	before.deaths = 0 // a person may redrive it at once
	return s.router.finish(now, w, m, Receipt{}, failure)
}

// writeDown says which message is about to be sent, for the next start to know
// if there is one. All attempts of a session count as one. What is not on record
// must not be sent.
func (s *session) writeDown(ctx context.Context, m *message, lose context.CancelCauseFunc) bool {
	if !s.careful() {
		return true
	}
	deaths := 1
	if before := &s.relay.before; before.suspect == m.row.ID {
		deaths += before.deaths
	}
	err := s.whileOurs(ctx, func() (bool, error) {
		return s.relay.writing.writeDown(ctx, s.writer.epoch, m.row.ID, deaths)
	})
	if err != nil && !over(ctx) {
		lose(err)
	}
	return err == nil
}

// survive waits until the sessions of this process have lasted long enough, and
// ends what is careful about this one.
func (s *session) survive(ctx context.Context) error {
	r := s.relay
	if r.unproven == 0 {
		return nil
	}
	began := time.Now()
	select {
	case <-r.after(r.unproven):
	case <-ctx.Done():
		r.unproven = max(1, r.unproven-time.Since(began))
		return nil
	}
	err := s.whileOurs(ctx, func() (bool, error) { return r.writing.acquit(ctx, s.writer.epoch) })
	if over(ctx) {
		return nil
	}
	if err != nil {
		return err
	}
	r.unproven, r.counted = 0, false
	if s.careful() {
		s.log.Info("the relay lives, requests go out side by side again")
		close(s.lifted)
	}
	return nil
}

// takeBack ends a start in order, so that it does not count. A careful session
// that lost its stream leaves the record as it is: nothing is proven yet.
func (s *session) takeBack(ctx context.Context, cause error) error {
	stopped := cause == nil
	if s.relay.unproven == 0 || s.careful() && !stopped {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.relay.farewell/3) // the rest is for the slot
	defer cancel()
	ours, err := s.relay.writing.acquit(ctx, s.writer.epoch)
	if ours {
		s.relay.counted = false
	}
	return err
}

// redeem takes the last start back where the end of its session could not, since
// the server was away or the relay was frozen, and another relay goes on: this
// one lives, so nobody died. It tries until the returned function is called.
func (r *Relay) redeem(ctx context.Context) (stop func()) {
	if !r.counted {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var trying sync.WaitGroup
	trying.Go(func() {
		for waits.Sleep(ctx, redeemPause) {
			if done, err := r.writing.redeem(ctx, r.epoch); done && err == nil {
				r.counted = false
				return
			}
		}
	})
	return func() {
		cancel()
		trying.Wait()
	}
}
