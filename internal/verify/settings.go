package verify

import (
	"fmt"
	"time"
)

// Settings say how a relay checks its outbox by itself. The env tags carry the
// names without the prefix RELAY_.
type Settings struct {
	// Interval is how often the relay that moves messages proves from the tables
	// that each one has one outcome or is on its way; 0 is never. It looks at what
	// was written since the last time, and rests for most of the time: a check costs
	// one connection and a twentieth of the work that the verb verify does at once.
	Interval time.Duration `env:"VERIFY_INTERVAL, default=24h"`
}

// shortest is the shortest interval: nobody looks more often whether it is over.
const shortest = turn

// Validate reports a setting that is out of range.
func (s *Settings) Validate() error {
	if s.Interval != 0 && s.Interval < shortest {
		return fmt.Errorf("VERIFY_INTERVAL is %s, want 0 or at least %s", s.Interval, shortest)
	}
	return nil
}
