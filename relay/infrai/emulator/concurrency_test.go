package emulator_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// Publishers, consumers and an operator at once: every message is consumed and
// acked once, whatever else goes on.
func TestServer_TakesEverybodyAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}, JournalEntries: 500})
	s.script(emulator.Fault{Route: "queue.publish", Every: 7, Store: true, Status: 503})
	const publishers, each, consumers = 8, 50, 4

	var publishing, consuming sync.WaitGroup
	for p := range publishers {
		publishing.Go(func() {
			for i := range each {
				body := publish(fmt.Sprintf("%d:%d", p, i), `{"n":1}`)
				for s.post(publishPath, body).Status != http.StatusOK {
				}
			}
		})
	}
	var (
		mu    sync.Mutex
		acked = map[string]int{}
	)
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acked)
	}
	for range consumers {
		consuming.Go(func() {
			for count() < publishers*each && !t.Failed() {
				for _, m := range s.consume("orders") {
					if got := s.post("/v1/queue/ack", handled("orders", m.MessageID)); !got.OK {
						t.Errorf("ack: %s", got.Raw)
					}
					mu.Lock()
					acked[m.MessageID]++
					mu.Unlock()
				}
			}
		})
	}
	publishing.Go(func() {
		for i := range 20 {
			s.get("/v1/queue/stats/orders").want(t, http.StatusOK, "")
			s.do(http.MethodGet, "/_emulator/journal?limit=50", ``)
			s.do(http.MethodPut, "/_emulator/settings", fmt.Sprintf(`{"rate_limit":%d}`, 900_000+i))
			s.do(http.MethodPost, "/_emulator/clock", `{"advance":"1ms"}`)
			id, err := s.AddFault(emulator.Fault{Key: "nobody"})
			if err != nil || !s.RemoveFault(id) {
				t.Errorf("fault %d: %v", id, err)
			}
			s.Accepted("orders")
		}
	})
	publishing.Wait()
	consuming.Wait()
	for id, n := range acked {
		if n != 1 {
			t.Errorf("%s was consumed %d times", id, n)
		}
	}
	if got := s.Counters(); got.Accepted != publishers*each || got.Acked != publishers*each {
		t.Errorf("%d accepted, %d acked, want %d", got.Accepted, got.Acked, publishers*each)
	}
}

// Discard keeps nothing, however much comes.
func TestServer_Discards(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}, Discard: true, Settings: emulator.Settings{Journal: "off"}})
	for range 3 {
		s.post(publishPath, publish("k", `{}`)).want(t, http.StatusOK, "")
	}
	if got := s.consume("orders"); len(got) != 0 {
		t.Errorf("consumed %v", got)
	}
	if got := s.Counters(); got.Accepted != 3 || got.Replayed != 0 {
		t.Errorf("%d accepted, %d replayed, want 3 and 0", got.Accepted, got.Replayed)
	}
	s.post(publishPath, `{"queue":"orders","payload":7}`).want(t, http.StatusBadRequest, "INVALID_ARGUMENT")
	s.advance(time.Second)
}
