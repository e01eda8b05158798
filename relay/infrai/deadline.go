package infrai

import (
	"context"
	"sync"
	"time"
)

// deadlines hands out contexts that end after a timeout. Requests that begin at
// about the same time under the same parent share one, which costs a twentieth
// of precision and saves a timer and four allocations for each.
type deadlines struct {
	timeout time.Duration
	step    time.Duration // how long a context takes in requests
	cause   error

	mu      sync.Mutex
	current *deadline
}

// deadline is a context and those who use it.
type deadline struct {
	context.Context
	cancel context.CancelFunc
	parent <-chan struct{} // the parent's Done, which identifies it
	until  time.Time       // no more requests after that
	users  int
}

func newDeadlines(timeout time.Duration) *deadlines {
	return &deadlines{timeout: timeout, step: timeout / 20, cause: timeoutError{timeout}}
}

// join returns a context that ends with parent, or no earlier than the timeout
// and at most a twentieth later. It must be given back.
//
// Parents are told apart by their Done channel: contexts that end together may
// share, and the values of one of them are seen by all.
func (d *deadlines) join(parent context.Context, now time.Time) *deadline {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.current
	if c == nil || c.parent != parent.Done() || now.After(c.until) {
		d.retire()
		c = &deadline{parent: parent.Done(), until: now.Add(d.step)}
		c.Context, c.cancel = context.WithDeadlineCause(parent, c.until.Add(d.timeout), d.cause)
		d.current = c
	}
	c.users++
	return c
}

// leave gives a context back. The last one to leave frees it, unless new
// requests may still join.
func (d *deadlines) leave(c *deadline) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.users--
	if c.users == 0 && c != d.current {
		c.cancel()
	}
}

// retire lets nobody else join the current context.
func (d *deadlines) retire() {
	if c := d.current; c != nil && c.users == 0 {
		c.cancel()
	}
	d.current = nil
}

func (d *deadlines) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.retire()
}
