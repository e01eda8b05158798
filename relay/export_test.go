package relay

import "time"

// Survival replaces the clock that says when a process has lived long enough.
func (r *Relay) Survival(after func(time.Duration) <-chan time.Time) { r.after = after }

// Farewell replaces how long the end of a session waits for the server.
func (r *Relay) Farewell(most time.Duration) { r.farewell = most }

// HoldRouter keeps everybody out of the router of the session until release.
func (r *Relay) HoldRouter() (release func()) {
	mu := &r.session.Load().router.mu
	mu.Lock()
	return mu.Unlock
}

// Carried is the number of outcomes that are remembered from earlier sessions.
func (r *Relay) Carried() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.carried)
}
