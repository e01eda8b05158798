package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
	"github.com/outbox-relay/outbox-relay/examples/orders/app"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

const (
	mugs       = 1000 // in stock at the beginning, of which each order takes two
	lease      = time.Minute
	retryDelay = 5 * time.Second
)

var orders = drill.Drill{
	Name:      "orders",
	Invariant: "each order is taken out of stock once, and the warehouse gets one call for it",
	Tables:    app.Tables,
	Queues: []drill.Queue{
		{Name: app.Orders + "-dead"}, {Name: app.Orders, DeadLetters: app.Orders + "-dead", MaxRetries: 5}, {Name: app.Warehouse},
	},
	Relay: map[string]string{
		"RELAY_RETRY_MIN": "10ms", "RELAY_RETRY_MAX": "50ms", "RELAY_PROBE_MIN": "20ms", "RELAY_PROBE_MAX": "50ms",
		"RELAY_STATUS_INTERVAL": "100ms",
	},
	Play:  play,
	Roles: map[string]drill.Role{"receiver": app.Receive, "worker": work},
}

// work is the worker's program. It looks at the queue more often than in
// production, so that nobody waits for it, and tells the drill what it did. It has
// one message at a time: a worker that is killed while it has one leaves no request
// behind that asks for more.
func work(ctx context.Context, env func(string) string) error {
	return app.Work(ctx, env, consumer.LoopConfig{
		Concurrency: 1, Lease: lease, RetryDelay: retryDelay, PollInterval: 20 * time.Millisecond, MaxPause: 100 * time.Millisecond,
		Report: func(r consumer.Report) { slog.Info(r.Outcome.String(), "event", r.Message.ID, "error", r.Err) },
	})
}

// shop is what the parts of the drill work with.
type shop struct {
	*drill.Stage
	shopify *shopify
	folder  string // of the secrets
	placed  int64  // orders
}

func play(s *drill.Stage) {
	shop := &shop{Stage: s, folder: s.Folder()}
	s.Exec(`insert into stock values ('mug', $1)`, mugs)
	shop.write(shopifySecrets, "secret-1")
	shop.write(apiKey, "key-1")
	receiver := s.Spawn("receiver", map[string]string{"LISTEN": "127.0.0.1:0", "SHOPIFY_SECRETS_FILE": shop.path(shopifySecrets)})
	_, address, _ := strings.Cut(s.AwaitLine(receiver, "listening"), "address=")
	shop.shopify = &shopify{stage: s, url: "http://" + address, secret: "secret-1"}

	concurrent(shop)
	hungUp(shop)
	killedBeforeTheCommit(shop)
	killedBeforeTheAck(shop)
	relayKilled(shop)
	replayed(shop)
	rotated(shop, receiver)

	s.Prove("the receiver stops when it is asked to", drill.Is("exit code", s.Stop(receiver), 0))
}

// place places an order, and counts it.
func (s *shop) place(id int) (status int, answer string) {
	s.Helper()
	s.placed++
	return s.shopify.place(id)
}

// worker starts a worker, with more settings if there are any.
func (s *shop) worker(more ...map[string]string) *relaybin.Process {
	s.Helper()
	env := map[string]string{"INFRAI_API_KEY_FILE": s.path(apiKey)}
	for _, m := range more {
		maps.Copy(env, m)
	}
	return s.Spawn("worker", env)
}

// settle waits until all that was placed is with the warehouse, and neither the
// relay nor the workers have anything left.
func (s *shop) settle() {
	s.Helper()
	s.Await(func(context.Context) error {
		s.PassRetry(app.Orders, retryDelay)
		called, left, waiting := s.Accepted(app.Warehouse), s.Left(app.Orders), s.Undispatched()
		if int64(called) >= s.placed && left == 0 && waiting == 0 {
			return nil
		}
		return fmt.Errorf("%d calls of the warehouse for %d orders; %d messages left for the workers, %d for the relay",
			called, s.placed, left, waiting)
	})
}

// proveOnce compares all that there is, settled, with what was placed.
func (s *shop) proveOnce(claim string, more ...drill.Fact) {
	s.Helper()
	calls, most := s.calls()
	s.Prove(claim, append(more,
		drill.Is("orders", s.Count(`select count(*) from orders`), s.placed),
		drill.Is("out of stock", mugs-s.Count(`select available from stock`), 2*s.placed),
		drill.Is("orders with a call", calls, s.placed), drill.Is("calls for one order", most, 1))...)
}

// calls counts what the queue of the warehouse has taken: how many orders there
// are, and how many calls of the order that has most.
func (s *shop) calls() (orders, most int64) {
	s.Helper()
	perOrder := make(map[string]int64)
	for _, m := range s.Queue.Accepted(app.Warehouse) {
		var call struct{ Order string }
		s.Must(json.Unmarshal(m.Payload, &call))
		perOrder[call.Order]++
		most = max(most, perOrder[call.Order])
	}
	return int64(len(perOrder)), most
}

// The files of the secrets.
const (
	shopifySecrets = "shopify"
	apiKey         = "infrai"
)

func (s *shop) path(name string) string { return filepath.Join(s.folder, name) }

// write puts a file in place as a whole: whoever reads it sees the old one or the
// new one.
func (s *shop) write(name, text string) {
	s.Helper()
	fresh := s.path(name + ".new")
	s.Must(os.WriteFile(fresh, []byte(text+"\n"), 0o600))
	s.Must(os.Rename(fresh, s.path(name)))
}
