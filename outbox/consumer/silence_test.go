package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

// lines is what package slog writes.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *lines) missing(parts ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, part := range parts {
		if !strings.Contains(l.text.String(), part) {
			return fmt.Errorf("%q is not in the log:\n%s", part, l.text.String())
		}
	}
	return nil
}

// logs takes what the default logger writes until the test's end.
func logs(t *testing.T) *lines {
	t.Helper()
	l, before := new(lines), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(l, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return l
}

var fails = func(context.Context, pgx.Tx, consumer.Message) error { return errBroken }

// Who has given neither Report nor Trouble finds in the log what goes wrong. Not
// parallel: the default logger is everybody's.
func TestLoop_IsNotSilent(t *testing.T) { //nolint:paralleltest // see above
	log := logs(t)
	r := newRig(t)
	r.publish("e-1")
	r.post("publish", `{"queue":"books","payload":{"id":"another name"}}`)
	for _, queue := range []string{"books", "boks"} {
		q := r.queue()
		q.Name = queue
		loop, err := consumer.NewLoop(r.once(fails), q, consumer.Plain(consumer.Field("event_id")), consumer.LoopConfig{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- loop.Run(ctx) }()
		pgtest.Eventually(t, patience, func() error {
			if queue == "books" {
				return log.missing("event=e-1 outcome=failed", "broken", "outcome=refused", `field \"event_id\" is missing`)
			}
			return log.missing("consume boks: the queue answered 404 QUEUE_NOT_FOUND")
		})
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// Nor is a receiver silent about its own failures, and it is about what anybody
// may send to it.
func TestReceiver_IsNotSilent(t *testing.T) { //nolint:paralleltest // see TestLoop_IsNotSilent
	log := logs(t)
	url := serve(t, newLedger(t).once(fails), free(), consumer.ReceiverConfig{})
	deliver(t, url, nil, `{"id":"e-1"}`)
	deliver(t, url, nil, `{"nothing":"e-2"}`)
	if err := log.missing("event=e-1 outcome=failed", "broken"); err != nil {
		t.Error(err)
	}
	if log.missing("malformed") == nil {
		t.Error("what is malformed is in the log")
	}
}

func TestLoop_EmptyKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	queue := r.queue()
	queue.APIKey = func() string { return "\n" }
	run := r.runOn(r.once(book), queue, quick())
	pgtest.Eventually(t, patience, func() error {
		if troubles := run.troubles(); len(troubles) > 0 {
			return nil
		}
		return errors.New("no trouble")
	})
	if got := run.troubles()[0].Error(); got != "consume books: the queue's APIKey is empty" {
		t.Errorf("got %s", got)
	}
	for _, entry := range r.server.Journal().Entries(0, 0) {
		if entry.Route == "queue.consume" && entry.Status == http.StatusUnauthorized {
			t.Error("it was asked without a key")
		}
	}
}
