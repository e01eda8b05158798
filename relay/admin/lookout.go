package admin

import (
	"context"
	"sync"
	"time"
)

const (
	// lookAge is how old an answer of the database may be that is given again.
	lookAge = 3 * time.Second
	// lookTimeout bounds one look, from the connection to the last row.
	lookTimeout = 5 * time.Second
)

// brief is the age of all looks but the doctor's.
func brief(*sight) time.Duration { return lookAge }

// lookout looks at the database for all who ask. However many they are, there is
// one look at a time, and the next one not before some time has passed: asking
// cannot hurt the database.
type lookout struct {
	look func(context.Context) (any, error)
	// age is how old what a look has shown may be and be given again.
	age func(*sight) time.Duration
	// timeout bounds a look.
	timeout time.Duration
	tasks   sync.WaitGroup

	mu     sync.Mutex
	last   *sight
	before *sight // the one before the last
}

// sight is what a look has shown, or will.
type sight struct {
	done  chan struct{} // closed when it is known
	began time.Time
	// What follows is for the time after done.
	report any
	err    error
}

// get returns what the database says. It waits for that until ctx ends; the look
// itself lasts as long as life does, at most.
func (l *lookout) get(ctx, life context.Context) (*sight, error) {
	s := l.current(life)
	select {
	case <-s.done:
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// current is the last look if it is fresh, or else a new one.
func (l *lookout) current(life context.Context) *sight {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil && (!l.last.over() || time.Since(l.last.began) < l.age(l.last)) {
		return l.last
	}
	s := &sight{done: make(chan struct{}), began: time.Now()}
	l.last, l.before = s, l.last
	l.tasks.Go(func() {
		defer close(s.done)
		ctx, cancel := context.WithTimeout(life, l.timeout)
		defer cancel()
		s.report, s.err = l.look(ctx)
	})
	return s
}

// newest is the last look that is over, without waiting for one under way; nil if
// there is none.
func (l *lookout) newest() *sight {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil && !l.last.over() {
		return l.before
	}
	return l.last
}

func (s *sight) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}
