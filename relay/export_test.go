package relay

import "time"

// Survival replaces the clock that says when a process has lived long enough.
func (r *Relay) Survival(after func(time.Duration) <-chan time.Time) { r.after = after }
