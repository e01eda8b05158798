package cdc

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// session is one possession of the slot: what the owner of the stream, the
// watch and the callers of [Source] share.
type session struct {
	wire    *wire
	created bool     // the slot was made for this session
	server  identity // of the primary
	pid     string   // of the walsender
	begun   time.Time
	start   lsn // the slot's confirmed flush at the beginning

	out       chan []outbox.Row
	inbox     inbox
	word      word
	confirmed atomic.Uint64 // an lsn
	newestXID atomic.Uint64
	turned    atomic.Int64  // when the owner came by last, in nanoseconds
	checkSoon chan struct{} // capacity 1: look at publication and slot now

	stop chan context.Context // capacity 1: end in good order until that context ends
	lost chan error           // capacity 1: end at once, the slot is gone
	once sync.Once            // for stop

	done     chan struct{} // closed when the owner has ended; then
	err      error         // is why, never nil,
	closeErr error         // and how an end in good order went
	tasks    sync.WaitGroup

	stats   *counters
	trouble func(error) // makes a problem known before the session ends
}

// end asks the owner to stop at once.
func (s *session) end(err error) {
	select {
	case s.lost <- err:
		s.wire.wake()
	default: // it already knows
	}
}

// close asks the owner to stop in good order, and waits.
func (s *session) close(ctx context.Context) error {
	s.once.Do(func() {
		s.stop <- ctx
		s.wire.wake()
		defer context.AfterFunc(ctx, s.wire.interrupt)()
		<-s.done
	})
	s.tasks.Wait()
	return s.closeErr
}

// over reports whether the session has ended.
func (s *session) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// progressed reports whether the session got past its start.
func (s *session) progressed() bool {
	return lsn(s.confirmed.Load()) > s.start
}

// useful reports whether the session progressed, or at least lasted.
func (s *session) useful(enough time.Duration) bool {
	return s.progressed() || time.Since(s.begun) >= enough
}

// checkNow asks the watch to look at publication and slot.
func (s *session) checkNow() {
	select {
	case s.checkSoon <- struct{}{}:
	default:
	}
}
