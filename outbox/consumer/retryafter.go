package consumer

import (
	"errors"
	"time"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// RetryAfter marks the error of a handler that knows when another try is of use,
// such as one whose request was answered with 429 and a Retry-After. Its
// transaction is rolled back like any other. A [Loop] gives the message back for
// that long instead of its RetryDelay, at most for [outbox.MaxDelay], in whole
// seconds and never less than was asked for; a [Receiver] says it to its sender.
// The delivery counts against the message's retries all the same.
// RetryAfter(nil, delay) is nil.
func RetryAfter(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryError{err, min(max(delay, 0), outbox.MaxDelay)}
}

type retryError struct {
	cause error
	delay time.Duration
}

func (e *retryError) Error() string { return e.cause.Error() }
func (e *retryError) Unwrap() error { return e.cause }

// delayOf is when the handler wants to be called again, or the default.
func delayOf(err error, otherwise time.Duration) time.Duration {
	if marked, ok := errors.AsType[*retryError](err); ok {
		return marked.delay
	}
	return otherwise
}
