package operate

import (
	"fmt"
	"strconv"
)

// Differing lists the settings of a queue that are not the default, but for a pause,
// as `outbox-relay queues set` takes them.
func (q *Queue) Differing() (settings []string) {
	add := func(name, value string) { settings = append(settings, name+"="+value) }
	word := func(name, value string) {
		if value != "" && value != words[name][0] {
			add(name, value)
		}
	}
	word("ordering", q.Ordering)
	if q.MaxInFlight != nil {
		add("max_in_flight", strconv.Itoa(*q.MaxInFlight))
	}
	if q.RatePerSecond != nil {
		add("rate_per_second", fmt.Sprint(*q.RatePerSecond))
	}
	if q.MaxAttempts != nil {
		add("max_attempts", strconv.Itoa(*q.MaxAttempts))
	}
	word("on_dead_letter", q.OnDeadLetter)
	word("envelope", q.Envelope)
	return settings
}
