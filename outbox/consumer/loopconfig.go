package consumer

import (
	"errors"
	"fmt"
	"time"
)

// LoopConfig says how a queue is consumed. The zero value is usable.
type LoopConfig struct {
	// Concurrency bounds the messages at work, and so the transactions. 0 is 8.
	// With 1 the messages of a FIFO queue are handled in its order.
	Concurrency int
	// Lease is how long the queue keeps a message from others while we work on
	// it, in whole seconds. 0 is 60 s. Longer leaves the messages of a consumer
	// that died lying for longer.
	Lease time.Duration
	// HandlerTimeout bounds the work on one message. It is shorter than the
	// lease. 0 is half of the lease.
	HandlerTimeout time.Duration
	// PollInterval is the pause after the queue had nothing. 0 is 1 s.
	PollInterval time.Duration
	// MaxPause bounds the pause after failures of the queue, which doubles from
	// PollInterval on; the queue may ask for a longer one, up to 5 minutes. 0 is
	// 30 s.
	MaxPause time.Duration
	// RetryDelay is how long a message that failed stays away, if its handler does
	// not say so by [RetryAfter]. 0 is 5 s.
	RetryDelay time.Duration
	// DrainTimeout is how long the messages at work have to end after a stop. 0
	// is 25 s.
	DrainTimeout time.Duration
	// Report is told of each delivery when its outcome is known, before the
	// queue learns of it. It is called from several goroutines at once. nil logs
	// those that are not over, to the default logger of package slog.
	Report func(Report)
	// Trouble is told what else goes wrong, and is no reason to stop: requests to
	// the queue ([QueueError]), [ErrLate], and before a message is asked for
	// [ErrNoTransaction]. It is called from several goroutines at once. nil logs
	// it, as for Report.
	Trouble func(error)
}

func (c *LoopConfig) setDefaults() {
	setDefault(&c.Concurrency, 8)
	setDefault(&c.Lease, time.Minute)
	setDefault(&c.HandlerTimeout, c.Lease/2)
	setDefault(&c.PollInterval, time.Second)
	setDefault(&c.MaxPause, 30*time.Second)
	setDefault(&c.RetryDelay, 5*time.Second)
	setDefault(&c.DrainTimeout, 25*time.Second)
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

func (c *LoopConfig) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Concurrency > 0, "Concurrency is %d, want at least 1", c.Concurrency)
	check(c.Lease >= time.Second && c.Lease%time.Second == 0, "Lease is %s, want whole seconds, at least 1", c.Lease)
	check(c.HandlerTimeout > 0 && c.HandlerTimeout < c.Lease, "HandlerTimeout is %s, want more than 0 and less than the lease of %s", c.HandlerTimeout, c.Lease)
	check(c.PollInterval > 0, "PollInterval is %s, want more than 0", c.PollInterval)
	check(c.MaxPause > 0, "MaxPause is %s, want more than 0", c.MaxPause)
	check(c.RetryDelay > 0, "RetryDelay is %s, want more than 0", c.RetryDelay)
	check(c.DrainTimeout > 0, "DrainTimeout is %s, want more than 0", c.DrainTimeout)
	return errors.Join(errs...)
}
