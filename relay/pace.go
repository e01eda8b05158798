package relay

import (
	"time"

	"golang.org/x/time/rate"
)

// pace bounds the requests to a queue in time. The zero pace bounds nothing. It
// belongs to the router and needs no lock.
type pace struct {
	limiter *rate.Limiter
	next    time.Time // not zero: a request had to wait until then
}

// newPace returns a pace of so many requests a second, 0 for no bound. Up to a
// twentieth of a second's may go at once, so that timers need not be finer than
// they are.
func newPace(perSecond float64) pace {
	if perSecond <= 0 {
		return pace{}
	}
	return pace{limiter: rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond/20)))}
}

// permits reports whether a request may go now, and counts it if so.
func (p *pace) permits(now time.Time) bool {
	if p.limiter == nil {
		return true
	}
	if p.limiter.AllowN(now, 1) {
		p.next = time.Time{}
		return true
	}
	missing := 1 - p.limiter.TokensAt(now)
	p.next = now.Add(time.Duration(missing/float64(p.limiter.Limit())*float64(time.Second)) + time.Microsecond)
	return false
}

// paceDue lists the queues again whose next request may go.
func (r *router) paceDue(now time.Time) {
	for _, q := range r.queues {
		if !q.pace.next.IsZero() && !q.pace.next.After(now) {
			q.pace.next = time.Time{}
			r.list(q)
			r.wakeOne()
		}
	}
}
