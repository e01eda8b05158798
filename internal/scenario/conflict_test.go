package scenario_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// HTTP-12: 409 may mean that an earlier request is still being handled, or that
// the queue has the key with something else. The relay repeats the same request
// a few times: the first kind passes, and the second becomes a dead letter that
// a person sees, never a success that nobody checked and never another key.
func TestHTTP12_ConflictHasTwoMeanings(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(quick).With(map[string]string{"RELAY_CONFLICT_ATTEMPTS": "4"})
	w.Fault(emulator.Fault{Key: "in-hand", Status: http.StatusConflict, Count: 2})
	w.Fault(emulator.Fault{Key: "stored", Store: true, Cut: emulator.CutReset, Count: 1})
	w.Fault(emulator.Fault{Key: "stored", Status: http.StatusConflict})
	r := w.Start()
	w.Insert(scenario.Message{Key: "in-hand", OrderingKey: "a"}, scenario.Message{Key: "behind-in-hand", OrderingKey: "a"},
		scenario.Message{Key: "stored", OrderingKey: "b"}, scenario.Message{Key: "behind-stored", OrderingKey: "b"})
	w.AwaitAccepted()
	pgtest.Eventually(t, scenario.Patience, func() error {
		dispatched := w.Count(`select count(*) from outbox.dispatched`)
		dead := w.Count(`select count(*) from outbox.dead_letters d join outbox.messages m on m.id = d.message_id
			where m.key = 'stored' and d.reason = 'conflict' and d.last_status = 409`)
		if dispatched != 3 || dead != 1 {
			return fmt.Errorf("%d dispatched and %d dead letters of a conflict, want 3 and 1", dispatched, dead)
		}
		return nil
	})
	w.AwaitSlot()
	w.Order()
	w.Same()
	w.NoPhantom()
	if got := w.Requests("in-hand"); got != 3 {
		t.Errorf("%d requests for the one that was in hand, want 3", got)
	}
	if got := w.Requests("stored"); got > 6 {
		t.Errorf("%d requests for the one that the queue has, want a few", got)
	}
	r.AwaitLog("dead letter") // it is told once it is durable
}

// ORD-08: the relay never puts two messages into one request, so none can be
// taken in part; what is behind a message in its ordering key waits for it.
func TestORD08_OneMessageInEachRequest(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(quick)
	w.Fault(emulator.Fault{Key: "a-1", Status: http.StatusInternalServerError, Count: 2})
	w.Start()
	for round := range 20 {
		key := func(name string) string {
			if round == 0 {
				return name
			}
			return fmt.Sprintf("%s-%d", name, round)
		}
		w.Commit(w.Conn, scenario.Message{Key: key("a-1"), OrderingKey: "a"}, scenario.Message{Key: key("b-1"), OrderingKey: "b"},
			scenario.Message{Key: key("a-2"), OrderingKey: "a"}, scenario.Message{Key: key("b-2"), OrderingKey: "b"})
	}
	w.Settle()
	accepted := false
	for _, e := range w.Queue.Journal().Entries(0, 0) {
		if e.Route != "queue.publish" || e.Key == "" {
			t.Errorf("a request to %s with key %q", e.Route, e.Key)
		}
		accepted = accepted || e.Key == "a-1" && e.Outcome == emulator.Accepted
		if e.Key == "a-2" && !accepted {
			t.Error("a-2 was sent before a-1 was accepted")
		}
	}
	if got := w.Requests("a-1"); got != 3 {
		t.Errorf("%d requests for a-1, want 3", got)
	}
	if got := w.Requests("b-1"); got != 1 {
		t.Errorf("%d requests for b-1, want 1", got)
	}
}
