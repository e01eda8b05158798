package relay

import (
	"time"

	"github.com/outbox-relay/outbox-relay/internal/vital"
)

// step is where Run is, for people.
type step struct {
	name  string
	since time.Time
	err   error // why it is there; nil if that is a matter of course
}

// Values of [State.Step].
const (
	// StepPreparing: the relay has the stream, and a session begins.
	StepPreparing = "preparing"
	// StepEnding: a session ends. Requests in flight come back, and what is left is
	// written.
	StepEnding = "ending"
)

// The other steps.
const (
	stepWaiting = "waiting" // Run has not been called
	stepOpening = "opening" // the source looks for the stream
	stepRunning = "running" // messages move
	stepResting = "resting" // before the next one
	stepStopped = "stopped" // Run has returned
)

func (r *Relay) enter(name string, err error) {
	r.step.Store(&step{name: name, since: time.Now(), err: err})
}

// Awaits says what must happen before Run can be called, for [Relay.State]; nil
// for nothing.
func (r *Relay) Awaits(obstacle error) {
	last := r.step.Load()
	if last.name == stepWaiting {
		r.step.CompareAndSwap(last, &step{name: stepWaiting, since: last.since, err: obstacle})
	}
}

// phase is where the relay is: Run's step, together with what the source is
// doing and with a stop that was asked for. The error is why, nil if that is a
// matter of course.
func (r *Relay) phase(source *Condition) (phase Phase, since time.Time, err error) {
	at := r.step.Load()
	if stopping := r.stopping.Load(); stopping != nil {
		return Stopping, *stopping, nil
	}
	phase, since, err = Starting, at.since, at.err
	if r.sessions.Load() > 0 {
		phase = Reconnecting
	}
	switch at.name {
	case stepRunning:
		phase = Active
		if s := r.session.Load(); s != nil && s.careful() {
			phase = Careful
		}
	case StepPreparing:
		err = r.hindrance()
	case stepOpening, stepResting:
		return r.opening(phase, since, err, source)
	}
	return phase, since, err
}

// opening is the phase of a relay without a session.
func (r *Relay) opening(phase Phase, since time.Time, err error, source *Condition) (Phase, time.Time, error) {
	if last := r.interrupted.Load(); last != nil {
		since, err = last.Since, last.Err
	}
	if source.Trouble != nil {
		err = source.Trouble.Err
	}
	switch source.Doing {
	case vital.Standby:
		return Standby, source.Since, nil
	case vital.Held:
		return Holding, source.Since, err
	default:
		return phase, since, err
	}
}

// hindrance is what keeps a session from its beginning.
func (r *Relay) hindrance() error {
	for _, store := range r.stores() {
		if trouble := store.pulse.Trouble(); trouble != nil {
			return trouble.Err
		}
	}
	return nil
}

// noteStop notes that a stop was asked for.
func (r *Relay) noteStop() {
	now := time.Now()
	r.stopping.Store(&now)
}
