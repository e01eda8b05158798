package scenario_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// A third of the requests fails and the others get through, so that no breaker stays
// open: page, /status and /readyz say so, and which class it is.
func TestStory_RequestsFail(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t))
	w.Fault(emulator.Fault{Route: "queue.publish", Status: http.StatusInternalServerError, Probability: 0.3, Seed: 7})
	h := examine(t, process(t, w, nil))
	stop := w.Writers(3)
	h.tells(w, "requests failed in the last minute, most of them with transient")
	stop()
	w.Settle()
}

// A release writes all messages under one ordering key: they go one after the other,
// the queue and those of other keys are well, and everything names what it is.
func TestStory_HotKey(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t))
	slow := w.Fault(emulator.Fault{Route: "queue.publish", Delay: 40 * time.Millisecond})
	h := examine(t, process(t, w, nil))
	for range 20 { // for 40 seconds at least, and it is told after ten
		w.Commit(w.Conn, scenario.Batch(fmt.Sprintf("shop-%d", len(w.Keys())), 50, "shop-1")...)
	}
	h.tells(w, "1 ordering key has a backlog of its own, which has gone out one message after the other")
	if text := verb(t, w, 0, "deferred", "keys", "--queue", scenario.QueueName); !strings.Contains(text, "shop-1") {
		t.Errorf("the key is not named:\n%s", text)
	}
	if text := verb(t, w, 0, "status"); !strings.Contains(text, "warn hot_key") {
		t.Errorf("status does not tell of it:\n%s", text)
	}
	w.Queue.RemoveFault(slow)
	w.Settle()
	h.forgets("hot_key")
}
