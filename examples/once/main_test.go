package main

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// lines hands over what is written, a line at a time.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// An order is placed, its message arrives twice, and there is one mail.
func TestOnce_OneMailForTwoDeliveries(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	w.Start()
	settings := map[string]string{"DATABASE_URL": w.URL, "INFRAI_BASE_URL": w.QueueURL, "INFRAI_API_KEY": "local"}
	env := func(name string) string { return settings[name] }

	out := make(lines, 2) // both answers of work: nobody waits while it stops
	if err := run(t.Context(), []string{"place", "1041"}, env, out); err != nil {
		t.Fatal(err)
	}
	if got := <-out; got != "placed 1041\n" {
		t.Errorf("place said %q", got)
	}
	if err := run(t.Context(), []string{"place", "1041"}, env, out); err == nil {
		t.Error("the same order was placed again")
	}
	w.Committed(scenario.Message{Key: "order-1041-placed", Queue: "orders", OrderingKey: "order-1041"})
	w.AwaitAccepted()
	again(t, w.QueueURL, `{"queue":"orders","payload":{"event_id":"order-1041-placed","order":"1041"}}`)

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"work"}, env, out) }()
	if first, second := <-out, <-out; first != "handled order-1041-placed\n" || second != "repeated order-1041-placed\n" {
		t.Errorf("work said %q, %q", first, second)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := w.Count(`select count(*) from mails`); n != 1 {
		t.Errorf("%d mails, want 1", n)
	}
}

func TestOnce_Usage(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	err := run(t.Context(), []string{"plaice"}, func(string) string { return url }, nil)
	if err == nil || !strings.Contains(err.Error(), "usage") {
		t.Errorf("got %v, want the usage", err)
	}
}

// again publishes a message once more, as a relay does after the queue has
// forgotten its key.
func again(t *testing.T, base, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/queue/publish", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer local")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("publish: %s", answer.Status)
	}
}
