package relay

import (
	"sync"
	"time"
)

// SweepState is how far the sweep is, which looks in the table for messages that
// the stream has not shown.
type SweepState struct {
	// Passed is when it last came to the end of the table, Next when it begins
	// again; nil before the first time, and while it is under way.
	Passed *time.Time `json:"passed"`
	Next   *time.Time `json:"next"`
	// Clean counts the passes in a row that found nothing, up to the last one.
	Clean int `json:"clean"`
	// Found counts what was found since [CleanPasses] of them, or since the session
	// began.
	Found int64 `json:"found"`
}

// CleanPasses is how many passes in a row have to find nothing until that what hid
// messages from the stream may be taken for mended. One of them may have begun
// before the last message came that was hidden.
const CleanPasses = 2

// sweeps notes how the sweep goes. The zero sweeps has not begun. It is safe for
// concurrent use.
type sweeps struct {
	mu    sync.Mutex // guards what follows
	state SweepState
	dirty bool // the pass under way has found something
}

// begin notes that the sweep is under way, rest when it will be again.
func (s *sweeps) begin()              { s.next(nil) }
func (s *sweeps) rest(next time.Time) { s.next(&next) }

func (s *sweeps) next(at *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Next = at
}

// found notes what a part of a pass has found.
func (s *sweeps) found(n int64) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Clean >= CleanPasses {
		s.state.Found = 0
	}
	s.state.Found += n
	s.state.Clean, s.dirty = 0, true
}

// passed notes the end of a pass.
func (s *sweeps) passed(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Passed = &now
	if !s.dirty {
		s.state.Clean++
	}
	s.dirty = false
}

func (s *sweeps) read() *SweepState {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	return &state
}
