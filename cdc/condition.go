package cdc

import (
	"time"

	"github.com/outbox-relay/outbox-relay/internal/vital"
)

// Condition is what the Source is doing, and what is the matter with it. It costs
// nothing and asks nobody.
func (s *Source) Condition() vital.Condition {
	state := s.State()
	c := vital.Condition{
		Doing:   doings[state],
		Since:   time.Unix(0, s.changed.Load()),
		Trouble: s.signs.Trouble(),
	}
	if doubts := s.doubts.Load(); doubts != nil {
		c.Doubts = *doubts
	}
	session := s.current.Load()
	switch {
	case state == Standby:
		if k := s.keeper.Load(); k != nil {
			c.Holder, c.HolderPID, c.HolderHeard = k.who, k.pid, k.heard
		}
	case state == Streaming && session != nil:
		c.Turned = time.Unix(0, max(session.turned.Load(), session.begun.UnixNano()))
	}
	return c
}

var doings = [...]vital.Doing{
	Closed: vital.Closed, Connecting: vital.Connecting, Standby: vital.Standby, Streaming: vital.Streaming, Held: vital.Held,
}

// become notes what the Source is doing from now on.
func (s *Source) become(state State) {
	if s.state.Swap(int32(state)) != int32(state) {
		s.changed.Store(time.Now().UnixNano())
	}
}
