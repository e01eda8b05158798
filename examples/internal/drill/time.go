package drill

import (
	"fmt"
	"time"
)

// Now is the time of the drill: that of its beginning, and what has passed.
func (s *Stage) Now() time.Time { return s.Queue.Clock().Now() }

// Pass lets time pass: the queue's clock goes forward, and the claims in the
// database become as much older, because its own clock cannot be moved.
func (s *Stage) Pass(d time.Duration) {
	s.Helper()
	s.Must(s.Queue.Clock().Advance(d))
	s.Exec(`update outbox.claims set
		claimed_at = claimed_at - make_interval(secs => $1), expires_at = expires_at - make_interval(secs => $1)`, d.Seconds())
	s.Say("time passes: %s", inWords(d))
}

// inWords is a duration as people say it.
func inWords(d time.Duration) string {
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		switch {
		case d == unit.length:
			return "1 " + unit.name
		case d > 0 && d%unit.length == 0:
			return fmt.Sprintf("%d %ss", d/unit.length, unit.name)
		}
	}
	return d.String()
}
