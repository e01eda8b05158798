package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

// later fails at the first call, and knows when to come again.
func later(delay time.Duration) consumer.Handler {
	var calls atomic.Int32
	return func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		if err := book(ctx, tx, m); err != nil || calls.Add(1) > 1 {
			return err
		}
		return fmt.Errorf("ask: %w", consumer.RetryAfter(errBroken, delay))
	}
}

// The queue keeps a message for as long as its handler says, and not for
// RetryDelay.
func TestRetryAfter_Loop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.publish("e-1")
	run := r.run(r.once(later(89500*time.Millisecond)), quick())
	nacked := func() []byte {
		for _, entry := range r.server.Journal().Entries(0, 0) {
			if entry.Route == "queue.nack" {
				return entry.Body
			}
		}
		return nil
	}
	pgtest.Eventually(t, patience, func() error {
		if nacked() == nil {
			return errors.New("nothing was nacked")
		}
		return nil
	})
	if !bytes.Contains(nacked(), []byte(`"delay_seconds":90,`)) {
		t.Errorf("nacked with %s, want 90 seconds", nacked())
	}
	r.want(0, 0)
	if err := r.server.Clock().Advance(90 * time.Second); err != nil {
		t.Fatal(err)
	}
	run.wait(consumer.Handled, 1)
	r.want(1, 1)
}

// A sender is told when to come again.
func TestRetryAfter_Receiver(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	url := serve(t, l.once(later(1500*time.Millisecond)), free(), consumer.ReceiverConfig{})
	for _, want := range []struct {
		status int
		after  string
	}{{http.StatusServiceUnavailable, "2"}, {http.StatusOK, ""}} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"id":"e-1"}`))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if got := response.Header.Get("Retry-After"); response.StatusCode != want.status || got != want.after {
			t.Errorf("%s and Retry-After %q, want %d and %q", response.Status, got, want.status, want.after)
		}
	}
	l.want(1, 1)
}

func TestRetryAfter_Error(t *testing.T) {
	t.Parallel()
	if consumer.RetryAfter(nil, time.Second) != nil {
		t.Error("RetryAfter(nil) is an error")
	}
	if err := consumer.RetryAfter(errBroken, -time.Second); !errors.Is(err, errBroken) || err.Error() != "broken" || consumer.IsPermanent(err) {
		t.Errorf("%v", err)
	}
}
