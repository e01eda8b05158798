package drill

import "time"

// Now is the time of the drill: that of its beginning, and what has passed.
func (s *Stage) Now() time.Time { return s.Queue.Clock().Now() }

// Pass lets time pass: the queue's clock goes forward, and the claims in the
// database become as much older, because its own clock cannot be moved.
func (s *Stage) Pass(d time.Duration) {
	s.Helper()
	s.Must(s.Queue.Clock().Advance(d))
	s.Exec(`update outbox.claims set
		claimed_at = claimed_at - make_interval(secs => $1), expires_at = expires_at - make_interval(secs => $1)`, d.Seconds())
	s.Say("%s pass", d)
}
