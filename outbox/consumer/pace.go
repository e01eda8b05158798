package consumer

import (
	"context"
	"errors"
	"time"
)

// reachable waits until the database takes transactions, if it did not at the
// last delivery or there was none yet: each delivery counts against a message's
// retries, and an outage of ours should cost no message all of them. It reports
// false if ctx ended first.
func (l *Loop) reachable(ctx context.Context) bool {
	for failures := 0; l.down.Load(); failures++ {
		err := l.consumer.probe(ctx)
		if err == nil {
			l.down.Store(false)
			break
		}
		if ctx.Err() != nil {
			return false
		}
		l.trouble(err)
		if !sleep(ctx, jitter(l.backoff(failures))) {
			return false
		}
	}
	return ctx.Err() == nil
}

// learn remembers whether work is of any use at the moment.
func (l *Loop) learn(outcome Outcome, err error) {
	if outcome != Failed {
		l.failed.Store(0) // the database has answered
		return
	}
	l.failed.Add(1)
	if isAway(err) {
		l.down.Store(true)
	}
}

// futile is how long to wait because all that was tried last has failed: it is
// more likely ours than the messages' fault, and each try costs a message one of
// its deliveries.
func (l *Loop) futile() time.Duration {
	rounds := int(l.failed.Load()) / l.config.Concurrency
	if rounds == 0 {
		return 0
	}
	return jitter(l.backoff(rounds - 1))
}

// pause is how long to wait before the next request: not at all while messages
// come.
func (l *Loop) pause(failures *int, messages int, err error) time.Duration {
	if err == nil {
		*failures = 0
		if messages > 0 {
			return 0
		}
		return jitter(l.config.PollInterval)
	}
	l.trouble(err)
	pause := jitter(l.backoff(*failures))
	*failures++
	if answer, ok := errors.AsType[*QueueError](err); ok {
		pause = max(pause, answer.RetryAfter)
	}
	return pause
}

func (l *Loop) backoff(failures int) time.Duration {
	pause := l.config.PollInterval
	for ; failures > 0 && pause < l.config.MaxPause; failures-- {
		pause *= 2
	}
	return min(pause, l.config.MaxPause)
}
