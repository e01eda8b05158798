package poll

import (
	"time"

	"github.com/outbox-relay/outbox-relay/internal/vital"
)

// stage is what the Source is doing.
type stage struct {
	doing  vital.Doing
	since  time.Time
	holder string // in standby
}

// Condition is what the Source is doing, and what is the matter with it. It costs
// nothing and asks nobody.
func (s *Source) Condition() vital.Condition {
	stage := s.stage.Load()
	c := vital.Condition{Doing: stage.doing, Since: stage.since, Trouble: s.signs.Trouble(), Holder: stage.holder}
	session := s.current.Load()
	switch {
	case stage.doing != vital.Streaming:
	case session.over():
		c.Doing = vital.Closed
	default:
		c.Turned, c.Trouble = session.pulse.Turned(), session.pulse.Trouble()
	}
	return c
}

// enter notes what the Source is doing from now on.
func (s *Source) enter(doing vital.Doing, holder string) {
	if last := s.stage.Load(); last == nil || last.doing != doing || last.holder != holder {
		s.stage.Store(&stage{doing: doing, since: time.Now(), holder: holder})
	}
}

// waitingFor is what the Source does after an error.
func waitingFor(err error) vital.Doing {
	if objects(err) {
		return vital.Held
	}
	return vital.Connecting
}
