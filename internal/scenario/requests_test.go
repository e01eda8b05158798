package scenario_test

import (
	"net/http"
	"testing"

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
