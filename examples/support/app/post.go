package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// requestTimeout bounds one request. It is less than the handler has, so that
// what comes of it can be written down.
const requestTimeout = 10 * time.Second

var client = &http.Client{
	Timeout: requestTimeout,
	// A target that has moved is for a person to change.
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// answer is what a target answered.
type answer struct {
	status     int
	retryAfter time.Duration
}

func (a *answer) sent() bool { return a.status >= 200 && a.status < 300 }

// mayPass reports whether the same request may succeed later.
func (a *answer) mayPass() bool {
	switch a.status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return a.status >= 500
}

func (a *answer) Error() string { return fmt.Sprintf("the target answered %d", a.status) }

// post sends a text. An error says that there was no answer: the target may have
// taken it or not, and knows by the key. (Package http does the same by itself: a
// request with an Idempotency-Key on a connection that was used before and broke
// is sent once more.)
func post(ctx context.Context, target, key string, attempt int, text string) (*answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(text))
	if err != nil {
		return nil, withoutAddress(err)
	}
	request.Header.Set("Content-Type", "text/plain; charset=utf-8")
	request.Header.Set("Idempotency-Key", key)
	request.Header.Set("Attempt", strconv.Itoa(attempt))
	response, err := client.Do(request)
	if err != nil {
		return nil, withoutAddress(err)
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10) // so that the connection can be used again
	return &answer{response.StatusCode, retryAfter(response.Header.Get("Retry-After"))}, nil
}

// withoutAddress leaves the target out of an error that goes to a log: addresses
// of this kind often hold a secret.
func withoutAddress(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}

// retryAfter reads seconds or a date; what is neither is no wish.
func retryAfter(value string) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return time.Until(at)
}
