package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

// ReceiverConfig says how deliveries over HTTP are taken. The zero value is
// usable.
type ReceiverConfig struct {
	// MaxBody is the largest body, in bytes. 0 is 1 MiB.
	MaxBody int64
	// Timeout bounds the work on one delivery after its body is here. 0 is 10 s;
	// choose less than the sender waits.
	Timeout time.Duration
	// AnswerResult answers with what the handler stored by [outbox.Complete], as
	// JSON, at the first delivery as at its repeats. Without it, and where
	// nothing was stored, a success has no body.
	AnswerResult bool
	// Report is told of each delivery before its answer goes out. It is called
	// from several goroutines at once. nil logs what failed or what the handler
	// refused, to the default logger of package slog; what is malformed or not
	// signed anybody could send, and only its sender is told.
	Report func(Report)
	// Now is the clock for the times in signatures; nil is [time.Now].
	Now func() time.Time
}

// Report is what became of a delivery. It has no payload in its error, as far as
// the handler put none there.
type Report struct {
	// Message is what was delivered, as far as it could be read.
	Message Message
	Outcome Outcome
	// Err is nil exactly when the outcome is [Handled] or [Repeated].
	Err error
	// Elapsed is the time from the delivery, read, to the outcome.
	Elapsed time.Duration
}

const (
	defaultMaxBody        = 1 << 20
	defaultReceiveTimeout = 10 * time.Second
)

// Receiver takes deliveries over HTTP and handles each event once. It is an
// [http.Handler] and answers:
//
//	200  handled, or a repeat
//	400  malformed: the body or the event's id cannot be read
//	401  not signed, or by somebody else, or too long ago
//	405  not a POST
//	413  the body is larger than MaxBody
//	422  the handler says that trying again is of no use ([Permanent])
//	503  all else; the sender should try again, after Retry-After if the handler
//	     says so ([RetryAfter])
//
// Only 200, 422 and 503 have been near the database. The work goes on when the
// sender hangs up: what nearly happened should not have to happen again.
type Receiver struct {
	consumer *Consumer
	sender   Sender
	config   ReceiverConfig
}

// NewReceiver reports everything that is wrong with what it gets.
func NewReceiver(c *Consumer, sender Sender, config ReceiverConfig) (*Receiver, error) {
	errs := []error{c.validate()}
	if sender.Verify == nil {
		errs = append(errs, errors.New("the sender's Verify is missing; Unsigned trusts everybody"))
	}
	if sender.Read == nil {
		errs = append(errs, errors.New("the sender's Read is missing"))
	}
	if config.MaxBody < 0 || config.Timeout < 0 {
		errs = append(errs, errors.New("MaxBody or Timeout is below 0"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if config.MaxBody == 0 {
		config.MaxBody = defaultMaxBody
	}
	if config.Timeout == 0 {
		config.Timeout = defaultReceiveTimeout
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Receiver{c, sender, config}, nil
}

// ServeHTTP implements [http.Handler].
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "want POST")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, r.config.MaxBody))
	if err != nil {
		err = bodyError(err)
		r.report(Report{Outcome: Refused, Err: err})
		refuse(w, status(Refused, err), publicText(Refused, err))
		return
	}
	began := time.Now()
	m, outcome, result, err := r.deliver(request, body)
	r.report(Report{Message: m, Outcome: outcome, Err: err, Elapsed: time.Since(began)})
	if err != nil {
		if delay := delayOf(err, 0); delay > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(wholeSeconds(delay), 10))
		}
		refuse(w, status(outcome, err), publicText(outcome, err))
		return
	}
	if result != nil {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(result) // a sender that is gone will repeat
}

// deliver trusts, reads and handles, in this order.
func (r *Receiver) deliver(request *http.Request, body []byte) (m Message, outcome Outcome, result json.RawMessage, err error) {
	if err := r.sender.Verify(request.Header, body, r.config.Now()); err != nil {
		if errors.Is(err, ErrUnauthenticated) {
			return m, Refused, nil, err
		}
		return m, Failed, nil, fmt.Errorf("verify: %w", err)
	}
	m, err = read(func() (Message, error) { return r.sender.Read(request.Header, body) })
	m.Header = request.Header
	if err != nil {
		return m, Refused, nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(request.Context()), r.config.Timeout)
	defer cancel()
	outcome, result, err = r.consumer.handle(ctx, m, r.config.AnswerResult)
	return m, outcome, result, err
}

func (r *Receiver) report(report Report) {
	switch {
	case r.config.Report != nil:
		r.config.Report(report)
	case !report.Outcome.Done() && !errors.Is(report.Err, ErrMalformed) && !errors.Is(report.Err, ErrUnauthenticated):
		slog.Warn("delivery is not over", "consumer", r.consumer.Name, "event", report.Message.ID, "outcome", report.Outcome, "error", report.Err)
	}
}

// errTooLarge is a body above the limit.
var errTooLarge = fmt.Errorf("%w: the body is too large", ErrMalformed)

func bodyError(err error) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return errTooLarge
	}
	return malformed("the body did not arrive")
}

// status is the answer to a delivery that is not over.
func status(outcome Outcome, err error) int {
	switch {
	case errors.Is(err, errTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, ErrUnauthenticated):
		return http.StatusUnauthorized
	case errors.Is(err, ErrMalformed):
		return http.StatusBadRequest
	case outcome == Refused:
		return http.StatusUnprocessableEntity
	}
	return http.StatusServiceUnavailable
}

// publicText is what the sender may know: the details are in the report.
func publicText(outcome Outcome, err error) string {
	switch {
	case errors.Is(err, ErrUnauthenticated):
		return ErrUnauthenticated.Error()
	case errors.Is(err, ErrMalformed):
		return ErrMalformed.Error()
	case outcome == Refused:
		return outcome.String()
	}
	return "try again later"
}

func refuse(w http.ResponseWriter, status int, text string) { http.Error(w, text, status) }
