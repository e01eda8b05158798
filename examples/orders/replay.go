package main

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
	"github.com/outbox-relay/outbox-relay/examples/orders/app"
)

// replayed brings everything again, while the claims are kept and after that.
func replayed(s *shop) {
	const day = 24 * time.Hour
	s.Scene("everything is replayed, within the 30 days of the claims and after them")
	worker := s.worker()
	s.Pass(29 * day)
	status := s.replay()
	s.settle()
	s.proveOnce("within their retention the claims stop a replay",
		drill.Is("webhooks", status, http.StatusOK), drill.Is("new claims", s.newClaims(), 0))

	s.Pass(2 * day)
	s.forgetMessages()
	status = s.replay()
	s.settle()
	s.proveOnce("after it the events are claimed anew, and the rows of the business stop the replay",
		drill.Is("webhooks", status, http.StatusOK), drill.Is("new claims", s.newClaims(), 2*s.placed),
		drill.Is("new messages", s.Count(`select count(*) from outbox.messages`), 0))

	status, _ = s.shopify.deliver("event-of-somebody", order(1001))
	s.settle()
	s.proveOnce("an old body under another event id does nothing either", drill.Is("delivery", status, http.StatusOK))
	s.Stop(worker)
}

// forgetMessages removes what was dispatched. The relay has done so by then, but its
// clock is that of Postgres. It does so a week later, when the slot has long moved
// on, so the drill waits for that.
func (s *shop) forgetMessages() {
	s.Helper()
	s.AwaitCount(1, `select count(*) from pg_replication_slots s join outbox.relays r on r.slot = s.slot_name
		where s.confirmed_flush_lsn >= r.confirmed_lsn`)
	s.Exec(`with gone as (delete from outbox.dispatched returning message_id)
		delete from outbox.messages where id in (select message_id from gone)`)
}

// replay delivers each webhook, and publishes each message for the workers, once
// more. It returns the worst status.
func (s *shop) replay() (worst int) {
	s.Helper()
	for id := 1001; id <= 1005; id++ {
		status, _ := s.shopify.place(id)
		worst = max(worst, status)
	}
	for _, m := range s.Queue.Accepted(app.Orders)[:s.placed] {
		s.Publish(app.Orders, m.Key, json.RawMessage(m.Payload)) // the queue has forgotten the key
	}
	return worst
}

// newClaims counts the claims of both sides that were taken since time passed.
func (s *shop) newClaims() int64 {
	s.Helper()
	return s.Count(`select count(*) from outbox.claims where claimed_at > now() - interval '1 hour'`)
}
