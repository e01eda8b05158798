package main

import (
	"context"
	"net/http"
	"sync"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
	"github.com/outbox-relay/outbox-relay/examples/orders/app"
)

// concurrent delivers one event many times at once. A lock keeps the first one in
// the middle of its transaction until others wait for its claim.
func concurrent(s *shop) {
	const deliveries = 16
	s.Scene("%d deliveries of one event at the same time", deliveries)
	release := s.Hold("orders")
	var all sync.WaitGroup
	answers := make([]string, deliveries)
	header, body := s.shopify.sign(event(1001), order(1001)), order(1001)
	for i := range answers {
		all.Go(func() {
			if status, text, err := s.TryPost(s.Context(), s.shopify.url, header, body); err == nil && status == http.StatusOK {
				answers[i] = string(text)
			}
		})
	}
	s.AwaitWaiting(3) // those that have a connection; the others wait for one
	release()
	all.Wait()
	s.placed++
	same := 0
	for _, a := range answers {
		if a == answers[0] && a != "" {
			same++
		}
	}
	worker := s.worker()
	s.settle()
	s.proveOnce("of deliveries at the same time one takes the order, and all get its receipt",
		drill.Is("equal answers", same, deliveries), drill.Is("claims", s.Claims(app.ReceiverName, event(1001)), 1))
	s.Stop(worker)
}

// hungUp cuts the sender's connection while the receiver is at work.
func hungUp(s *shop) {
	s.Scene("the sender hangs up before it has its answer, and delivers again")
	release := s.Hold("orders")
	ctx, hangUp := context.WithCancel(s.Context())
	body := order(1002)
	gone := make(chan error, 1)
	go func() {
		_, _, err := s.TryPost(ctx, s.shopify.url, s.shopify.sign(event(1002), body), body)
		gone <- err
	}()
	s.AwaitWaiting(1)
	hangUp()
	noAnswer := <-gone != nil
	release()
	s.AwaitCount(1, `select count(*) from orders where id = '1002'`)
	status, answer := s.place(1002)
	worker := s.worker()
	s.settle()
	s.proveOnce("what was done for a sender that is gone is not done again",
		drill.Is("no answer at first", noAnswer, true), drill.Is("then", status, http.StatusOK),
		drill.Is("receipt", answer, s.Text(`select format('{"order": "%s", "receipt": %s}', id, receipt) from orders where id = '1002'`)))
	s.Stop(worker)
}
