package scenario_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// narrow is a front that answers 413 to a request above 1 MB, once it has read
// it, and takes those itself that are too large for the emulated queue behind
// it.
type narrow struct {
	mu       sync.Mutex
	requests map[string]int
}

const (
	narrowLimit  = 1 << 20
	passedOn     = 200_000
	largestSent  = 20 << 20
	memoryLarge  = 256 << 20 // for messages eighty times as large as the queue takes
	largeAllowed = "33554432"
	largeRounds  = 2
)

func (n *narrow) front(next http.Handler, _ <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength <= passedOn {
			next.ServeHTTP(w, r)
			return
		}
		key := r.Header.Get("Idempotency-Key")
		n.mu.Lock()
		n.requests[key]++
		n.mu.Unlock()
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		if r.ContentLength > narrowLimit {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			fmt.Fprint(w, "<html>too large</html>")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"ok":true,"data":{"message_id":"large-%s"}}`, key)
	})
}

// APP-05: messages of 1 KB to 20 MB, for a queue that takes 1 MB. What is too
// large is a dead letter after one request, which says how large it was; the
// others of its ordering key and all other ones go on, and memory stays bounded.
func TestAPP05_LargeMessages(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"INFRAI_MAX_BODY_BYTES": largeAllowed, "INFRAI_REQUEST_TIMEOUT": "1m", "RELAY_LOG_LEVEL": "info"})
	w.Exec(`do $$ declare c text; begin
		for c in select conname from pg_constraint where conrelid = 'outbox.messages'::regclass and contype = 'c' and conname like '%payload%' loop
			execute format('alter table outbox.messages drop constraint %I', c);
		end loop; end $$`)
	queue := &narrow{requests: map[string]int{}}
	w.Before(queue.front)
	p := plain(t, w.Env, "run")
	p.AwaitLog(t, "session began")

	sizes := []int{1 << 10, 100 << 10, 500 << 10, 1000 << 10, 2 << 20, 5 << 20, 10 << 20, largestSent}
	tooLarge := 0
	for round := range largeRounds {
		for _, size := range sizes {
			w.Exec(`insert into outbox.messages (key, queue, ordering_key, payload)
				values ($1, 'orders', 'large', jsonb_build_object('filler', repeat('x', $2)))`, fmt.Sprintf("large-%d-%d", round, size), size)
			if size > narrowLimit {
				tooLarge++
			}
			w.Insert(scenario.Message{Key: fmt.Sprintf("small-%d-%d", round, size), OrderingKey: "small"},
				scenario.Message{Key: fmt.Sprintf("behind-%d-%d", round, size), OrderingKey: "large"})
		}
	}
	pgtest.Eventually(t, scenario.Patience, func() error {
		dispatched, dead := w.Count(`select count(*) from outbox.dispatched`), w.Count(`select count(*) from outbox.dead_letters`)
		if want := int64(3*largeRounds*len(sizes) - tooLarge); dispatched != want || dead != int64(tooLarge) {
			return fmt.Errorf("%d dispatched and %d dead letters, want %d and %d", dispatched, dead, want, tooLarge)
		}
		return nil
	})
	w.AwaitAccepted()
	w.AwaitSlot()
	w.Order()
	queue.mu.Lock()
	defer queue.mu.Unlock()
	if len(queue.requests) != largeRounds*(len(sizes)-2) {
		t.Errorf("%d large messages were sent, want %d", len(queue.requests), largeRounds*(len(sizes)-2))
	}
	for key, n := range queue.requests {
		if n != 1 {
			t.Errorf("%d requests for %s", n, key)
		}
	}
	var text string
	err := w.Conn.QueryRow(t.Context(), `select last_error from outbox.dead_letters d join outbox.messages m on m.id = d.message_id
		where d.reason = 'refused' and d.last_status = 413 and d.attempts = 1 and m.key = $1`, fmt.Sprintf("large-0-%d", largestSent)).Scan(&text)
	if err != nil || !strings.Contains(text, "too large") || !strings.Contains(text, fmt.Sprint(largestSent)[:4]) {
		t.Errorf("the reason of the largest is %q: %v", text, err)
	}
	took := peak(t, p)
	t.Logf("the relay took %d MiB", took>>20)
	if took > memoryLarge {
		t.Errorf("the relay took %d MiB, want at most %d", took>>20, memoryLarge>>20)
	}
}
