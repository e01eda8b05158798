package relay

import (
	"math/rand/v2"
	"time"
)

// backoff is the wait after the n-th failure in a row, n from 1: a random time
// in the upper half of a span that starts at least and doubles up to most. The
// lower half stays free, so that even an unlucky row of draws never becomes a
// busy loop; the spread keeps many lanes from coming back at the same instant.
func backoff(n int, least, most time.Duration) time.Duration {
	half := leastBackoff(n, least, most)
	return half + rand.N(half+1)
}

// leastBackoff is the shortest wait that backoff may draw.
func leastBackoff(n int, least, most time.Duration) time.Duration {
	span := least
	for i := 1; i < n && span < most; i++ {
		span *= 2
	}
	return min(span, most) / 2
}

// pause is the wait that a queue asked for by Retry-After, with a little on top
// so that not every relay returns in the same second.
func pause(asked time.Duration) time.Duration {
	return asked + rand.N(asked/10+1)
}

// outage reports whether a failure of this class says something about the
// queue rather than about the message.
func (c Class) outage() bool {
	switch c {
	case UnknownOutcome, Transient, RateLimited, EndpointClosed, QueueClosed:
		return true
	}
	return false
}
