package admin

import (
	"time"

	"github.com/outbox-relay/outbox-relay/relay"
)

// Live answers whether the process is alive: none of its loops is stuck.
func Live(cfg *Config, state *relay.State) Verdict {
	e := newExaminer(cfg, state)
	e.stuck()
	return e.verdict()
}

// codeStuck is the only reason why a process is not alive.
const codeStuck = "stuck"

// stuck finds the loops that have been at one piece of work for too long. Who
// waits for Postgres is not stuck: a statement may take long, and a new process
// would wait for the same.
func (e *examiner) stuck() {
	s, long := e.state, e.cfg.stuckAfter()
	tooLong := func(at *time.Time) bool { return e.age(at) >= long }
	for _, loop := range s.Loops {
		if tooLong(loop.Busy) && !e.waitsFor(loop.Connection) {
			e.fail(codeStuck, loop.Busy, "", "the loop %s has been at one piece of work for %s", loop.Name, e.ago(loop.Busy))
		}
	}
	if oldest := s.Router.OldestRequest; tooLong(oldest) {
		e.fail(codeStuck, oldest, "", "a request to the queue has been under way for %s, longer than one may take", e.ago(oldest))
	}
	if turned := s.Source.Turned; tooLong(turned) {
		e.fail(codeStuck, turned, "", "the loop that reads the stream has not come by for %s", e.ago(turned))
	}
	if s.Step == relay.StepEnding && tooLong(&s.StepSince) {
		e.fail(codeStuck, &s.StepSince, "", "the session has been ending for %s", e.ago(&s.StepSince))
	}
}

// waitsFor reports whether a connection is at work, or waits to be tried again.
func (e *examiner) waitsFor(connection string) bool {
	for _, c := range e.state.Database {
		if c.Name == connection {
			return c.Busy != nil || c.Trouble != nil
		}
	}
	return false
}
