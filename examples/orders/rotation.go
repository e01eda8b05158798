package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
	"github.com/outbox-relay/outbox-relay/examples/orders/app"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
)

// rotated changes the secret of the webhooks and the key with which the workers
// receive, while receiver, worker and relay go on running.
func rotated(s *shop, receiver *relaybin.Process) {
	s.Scene("the secret of the webhooks is rotated")
	queue := newGate(s.Stage, "key-1")
	worker := s.worker(map[string]string{"INFRAI_BASE_URL": s.Serve(queue)})
	s.rotateSecret()

	s.Scene("the key with which the workers receive is rotated")
	queue.admit("key-1", "key-2")
	s.write(apiKey, "key-2")
	s.place(1009)
	s.settle()
	queue.admit("key-2")
	s.place(1010)
	s.settle()
	s.proveOnce("with both keys valid for a while nobody notices", drill.Is("refused", queue.refusals.Load(), 0))

	queue.admit("key-3")        // and nobody has told the workers
	queue.awaitRefusal(s.Stage) // what was asked for with the old key is answered
	taken := s.Accepted(app.Orders)
	s.place(1011)
	s.AwaitAccepted(app.Orders, taken+1)
	queue.awaitRefusal(s.Stage)
	unshipped := s.Count(`select count(*) from shipments where order_id = '1011'`)
	s.write(apiKey, "key-3")
	s.settle()
	s.proveOnce("a key that is refused holds the workers up, and neither the receiver nor the relay",
		drill.Is("shipped before", unshipped, 0), drill.Is("dead letters", s.Left(app.Orders+"-dead"), 0))
	s.Prove("nobody was restarted", drill.Is("receiver runs", receiver.Running(), true),
		drill.Is("worker runs", worker.Running(), true), drill.Is("relay runs", s.Relay.Running(), true))
	s.Stop(worker)
}

// rotateSecret adds the new secret, switches the sender over, and takes the old one
// out.
func (s *shop) rotateSecret() {
	s.Helper()
	before, _ := s.place(1006)
	s.write(shopifySecrets, "secret-1\nsecret-2")
	both, _ := s.place(1007)
	s.shopify.secret = "secret-2"
	switched, _ := s.place(1008)
	s.write(shopifySecrets, "secret-2")
	old := &shopify{stage: s.Stage, url: s.shopify.url, secret: "secret-1"}
	refused, _ := old.deliver("event-old", order(1999))
	repeat, _ := s.shopify.place(1006)
	s.settle()
	s.proveOnce("deliveries pass before, during and after a rotation, and not with a secret that is out",
		drill.Is("before", before, http.StatusOK), drill.Is("both valid, old one", both, http.StatusOK),
		drill.Is("both valid, new one", switched, http.StatusOK), drill.Is("a repeat under the new one", repeat, http.StatusOK),
		drill.Is("the old one afterwards", refused, http.StatusUnauthorized), drill.Is("its claims", s.Claims(app.ReceiverName, "event-old"), 0))
}

// gate stands before the queue and admits certain keys, which the emulator itself
// does not tell apart.
type gate struct {
	queue    http.Handler
	keys     atomic.Pointer[[]string]
	refusals atomic.Int64
}

func newGate(s *drill.Stage, keys ...string) *gate {
	s.Helper()
	target, err := url.Parse(s.QueueURL)
	s.Must(err)
	g := &gate{queue: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}}
	g.admit(keys...)
	return g
}

// admit changes the keys that are valid.
func (g *gate) admit(keys ...string) { g.keys.Store(&keys) }

// awaitRefusal waits until it has refused once more.
func (g *gate) awaitRefusal(s *drill.Stage) {
	s.Helper()
	seen := g.refusals.Load()
	s.Await(func(context.Context) error {
		if g.refusals.Load() == seen {
			return errors.New("a worker that is refused")
		}
		return nil
	})
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if slices.Contains(*g.keys.Load(), key) {
		g.queue.ServeHTTP(w, r)
		return
	}
	g.refusals.Add(1)
	w.WriteHeader(http.StatusUnauthorized)
	fmt.Fprint(w, `{"ok":false,"data":null,"error":{"code":"UNAUTHORIZED","message":"no such key"},"metadata":{}}`)
}
