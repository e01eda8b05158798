package scenario_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// CDC-06, with messages that do not stay in the WAL: of a transaction the queue
// takes the first few and then hangs for so long that the rest is deferred and
// the slot passes it. After a kill everything that was not accepted arrives, in
// order, whatever the number of those that were.
func TestCDC06_KilledWithinATransactionThatIsDeferred(t *testing.T) {
	t.Parallel()
	const size = 10
	for taken := range size {
		t.Run(fmt.Sprint(taken), func(t *testing.T) {
			t.Parallel()
			w := brisk(scenario.New(t))
			messages := scenario.Batch("m", size, "a")
			for _, m := range messages[taken:] { // by their keys: those before may need a second request
				w.Fault(emulator.Fault{Key: m.Key, Hang: true})
			}
			p := process(t, w, nil)
			w.Commit(w.Conn, messages...)
			awaitDeferred(w, t, int64(size-taken), "true")
			w.AwaitSlot()
			if accepted := len(w.Queue.Accepted("")); accepted != taken {
				t.Errorf("%d messages are accepted, want %d", accepted, taken)
			}
			kill(t, p)
			w.Queue.ClearFaults()
			process(t, w, nil)
			w.Insert(scenario.Batch("after", 3, "a")...)
			w.Settle()
			noneLeft(w, t)
		})
	}
}

// CDC-07, with messages that do not stay in the WAL: one message hangs, those of
// all later transactions go on. The slot passes it once it is in the table, and
// it is not lost in a kill.
func TestCDC07_KilledWithAnOlderTransactionDeferred(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t))
	hang := w.Fault(emulator.Fault{Key: "first", Hang: true})
	p := process(t, w, nil)
	first := scenario.Message{Key: "first", OrderingKey: "a"}
	w.Insert(first)
	w.AwaitRequest("first")
	others := scenario.Batch("m", 200, strings.Split("bcdefghijklmnopqrstuvwxyz", "")...)
	w.Insert(others...)
	pgtest.Eventually(t, scenario.Patience, func() error {
		if marked := w.Count(`select count(*) from outbox.dispatched`); marked != int64(len(others)) {
			return fmt.Errorf("%d of the others are dispatched, want %d", marked, len(others))
		}
		return nil
	})
	awaitDeferred(w, t, 1, "true")
	w.AwaitSlot()
	requests := map[string]int{} // a busy machine needs a second one for some
	for _, m := range others {
		requests[m.Key] = w.Requests(m.Key)
	}
	behind := scenario.Message{Key: "behind", OrderingKey: "a"}
	w.Insert(behind)
	awaitDeferred(w, t, 2, "true")
	kill(t, p)
	w.Queue.RemoveFault(hang)
	process(t, w, nil)
	w.Settle()
	noneLeft(w, t)
	for _, m := range others {
		if got := w.Requests(m.Key); got != requests[m.Key] {
			t.Errorf("%d requests for %s, %d before the kill", got, m.Key, requests[m.Key])
		}
	}
}

// CDC-05, with a queue that is down: all of a large transaction goes into the
// table, through a kill half-way, and comes out in order.
func TestCDC05_LargeTransactionForAQueueThatIsDown(t *testing.T) {
	t.Parallel()
	const size = 4000
	w := brisk(scenario.New(t))
	down := w.Fault(emulator.Fault{Route: "queue.publish", Status: http.StatusServiceUnavailable})
	p := process(t, w, nil)
	messages := scenario.Batch("m", size, "a", "b", "c", "d", "e", "f", "g", "h", "")
	tx, err := w.Conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		if err := scenario.Write(t.Context(), tx, messages[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.Committed(messages...)
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := w.Count(`select count(*) from outbox.deferred`); n < size/10 {
			return fmt.Errorf("%d are deferred", n)
		}
		return nil
	})
	kill(t, p)
	process(t, w, nil)
	awaitDeferred(w, t, size, "true")
	w.AwaitSlot()
	w.Queue.RemoveFault(down)
	w.Settle()
	noneLeft(w, t)
}

// counter is a front that takes so many requests a second and says 429 to the
// others, with a second to wait. It knows when each came in.
type counter struct {
	perSecond int

	mu    sync.Mutex
	down  bool
	times []time.Time
	taken []time.Time
}

func (c *counter) front(next http.Handler, _ <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := time.Now()
		c.mu.Lock()
		c.times = append(c.times, now)
		down, full := c.down, len(c.taken) >= c.perSecond && now.Sub(c.taken[len(c.taken)-c.perSecond]) < time.Second
		if !down && !full {
			c.taken = append(c.taken, now)
		}
		c.mu.Unlock()
		switch {
		case down:
			w.WriteHeader(http.StatusServiceUnavailable)
		case full:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (c *counter) set(down bool) (requests, busiestSecond int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
	for first, last := 0, 0; last < len(c.times); last++ {
		for c.times[last].Sub(c.times[first]) >= time.Second {
			first++
		}
		busiestSecond = max(busiestSecond, last-first+1)
	}
	requests, c.times = len(c.times), nil
	return requests, busiestSecond
}

// HTTP-13: many ordering keys wait for a queue that is down. Meanwhile it is
// asked by probes, not by each of them; and when it is back and takes a hundred
// requests a second, it is not run over by all at once.
func TestHTTP13_RetriesAreNotSynchronised(t *testing.T) {
	t.Parallel()
	const size, perSecond = 1000, 100
	w := scenario.New(t).With(quick).With(map[string]string{"RELAY_DEFER_AFTER": "500ms"})
	queue := &counter{perSecond: perSecond, down: true}
	w.Before(queue.front)
	r := w.Start()
	r.AwaitLog("session began")
	keys := make([]string, size/4)
	for i := range keys {
		keys[i] = fmt.Sprintf("lane-%d", i)
	}
	messages := scenario.Batch("m", size, keys...)
	for i := 0; i < size; i += 50 {
		w.Commit(w.Conn, messages[i:i+50]...)
	}
	awaitDeferred(w, t, size, "true")
	queue.set(true)
	scenario.Throughout(t, 3*time.Second, r.Alive)
	if n, _ := queue.set(false); n > 3*20+5 { // a probe every 50 to 200 ms
		t.Errorf("%d requests in 3 s to a queue that is down, want probes", n)
	}
	began := time.Now()
	w.Settle()
	noneLeft(w, t)
	took := time.Since(began)
	requests, busiest := queue.set(false)
	t.Logf("%d requests for %d messages in %s, %d in the busiest second", requests, size, took, busiest)
	if busiest > 3*perSecond {
		t.Errorf("%d requests in one second, the queue takes %d", busiest, perSecond)
	}
	if least := time.Duration(size/perSecond) * time.Second; took > 4*least {
		t.Errorf("the queue takes all in %s, the relay took %s", least, took)
	}
	if requests > 3*size {
		t.Errorf("%d requests for %d messages", requests, size)
	}
}
