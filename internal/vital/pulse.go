package vital

import (
	"sync/atomic"
	"time"
)

// Pulse is what one loop shows of itself. The zero Pulse is that of a loop which
// has not come by yet. Begin, Turn and End are for one goroutine at a time;
// everything else is safe for concurrent use.
type Pulse struct {
	busy    atomic.Int64 // when the work began that the loop is at; 0 while it waits
	turned  atomic.Int64 // when it came by last
	trouble atomic.Pointer[Trouble]
}

// Trouble is what keeps a loop from its work.
type Trouble struct {
	// Err is the last error, Since when the first one of the row came.
	Err   error
	Since time.Time
}

// Begin says that the loop has something to do. What it is at is measured from
// here, or from the last Turn.
func (p *Pulse) Begin(now time.Time) { p.busy.Store(now.UnixNano()) }

// Turn says that the loop comes by, and still has something to do.
func (p *Pulse) Turn(now time.Time) {
	p.busy.Store(now.UnixNano())
	p.turned.Store(now.UnixNano())
}

// End says that the loop waits for something to do.
func (p *Pulse) End(now time.Time) {
	p.turned.Store(now.UnixNano())
	p.busy.Store(0)
}

// Note says how a piece of work went: an error begins trouble or goes on with it,
// nil ends it.
func (p *Pulse) Note(now time.Time, err error) {
	last := p.trouble.Load()
	switch {
	case err == nil && last == nil:
	case err == nil:
		p.trouble.Store(nil)
	case last == nil:
		p.trouble.Store(&Trouble{Err: err, Since: now})
	default:
		p.trouble.Store(&Trouble{Err: err, Since: last.Since})
	}
}

// Busy is when the work began that the loop is at; zero while it waits.
func (p *Pulse) Busy() time.Time { return moment(p.busy.Load()) }

// Turned is when the loop came by last; zero before the first time.
func (p *Pulse) Turned() time.Time { return moment(p.turned.Load()) }

// Trouble is what keeps the loop from its work; nil if nothing does.
func (p *Pulse) Trouble() *Trouble { return p.trouble.Load() }

func moment(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}
