package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// Publisher hands one message to the queue.
type Publisher interface {
	// Publish sends the message and returns nil once the queue has accepted
	// it. Every call for a row sends the same key and the same bytes. Any error
	// is a *[PublishError], which says what happens next; a context that ends
	// while a request is under way is an unknown outcome. It is safe for
	// concurrent use and does not keep row.
	Publish(ctx context.Context, row *outbox.Row) (Receipt, error)
}

// Receipt is what the queue said when it accepted a message.
type Receipt struct {
	// QueueMessageID is the queue's own id of the message; it may be empty.
	QueueMessageID string
	// RequestID is the queue's id of the request; it may be empty.
	RequestID string
}

// Class says what happens next with a message that was not accepted.
type Class int

// The classes, in the words of the table in docs/guarantees.md.
const (
	// UnknownOutcome: the queue may have accepted it (timeout, reset,
	// unreadable 2xx). Retry with the same key and bytes.
	UnknownOutcome Class = iota + 1
	// Transient: the queue did not accept it now (5xx, 408, 425). Retry.
	Transient
	// RateLimited: the queue asks for a pause (429).
	RateLimited
	// EndpointClosed: nothing can be published (401, 402, 403). Pause
	// everything and probe slowly; no attempt is burned.
	EndpointClosed
	// QueueClosed: nothing can be published to this queue (404). Pause the
	// queue and probe slowly; no attempt is burned.
	QueueClosed
	// Conflict: the key is taken or in flight (409). Retry the same request a
	// bounded number of times, then set it aside; never mint another key.
	Conflict
	// Refused: the queue will never take it (400, 413, 415, 422, other 4xx), or
	// it cannot be sent at all (status 0, no request was made). It becomes a
	// dead letter.
	Refused
)

var classNames = [...]string{
	UnknownOutcome: "unknown_outcome", Transient: "transient", RateLimited: "rate_limited",
	EndpointClosed: "endpoint_closed", QueueClosed: "queue_closed", Conflict: "conflict", Refused: "refused",
}

// String is the name of the class in logs, metrics and the reason columns.
func (c Class) String() string {
	if c <= 0 || int(c) >= len(classNames) {
		return "unclassified"
	}
	return classNames[c]
}

// PublishError says why a message was not accepted. It never holds the payload
// or a secret: it is logged and stored in dead_letters as it is.
type PublishError struct {
	Class Class
	// Status is the HTTP status, 0 without an answer.
	Status int
	// Code is the queue's own code, such as QUEUE_NOT_FOUND; it may be empty.
	Code string
	// Message is a short text for people, on one line.
	Message string
	// RequestID is the queue's id of the request; it may be empty.
	RequestID string
	// RetryAfter is the pause that the queue asked for, already capped; 0
	// without one.
	RetryAfter time.Duration
	// Err is the cause, such as a network error; it may be nil.
	Err error
}

// Error implements error.
func (e *PublishError) Error() string {
	text := e.Class.String()
	if e.Status != 0 {
		text += fmt.Sprintf(": status %d", e.Status)
	}
	if e.Code != "" {
		text += ": " + e.Code
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// beside is the text of the failure for a place that has a reason already: where
// that is the class of the failure, the class is not told twice.
func (e *PublishError) beside(reason string) string {
	text, classed := strings.CutPrefix(e.Error(), reason)
	if !classed {
		return text
	}
	return strings.TrimPrefix(text, ": ")
}

// sent reports whether there was a request; a nil error means that the queue
// accepted it.
func (e *PublishError) sent() bool {
	return e == nil || e.Class != Refused || e.Status != 0
}

// reason is that of a dead letter.
func (e *PublishError) reason() string {
	if errors.Is(e.Err, errCrashes) {
		return reasonCrashed
	}
	return e.Class.String()
}

// Unwrap returns the cause.
func (e *PublishError) Unwrap() error { return e.Err }
