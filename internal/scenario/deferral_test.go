package scenario_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// brisk are settings under which what takes minutes in production takes a
// second.
func brisk(w *scenario.World) *scenario.World {
	return w.With(map[string]string{
		"RELAY_RETRY_MIN": "10ms", "RELAY_RETRY_MAX": "100ms", "RELAY_PROBE_MIN": "20ms", "RELAY_PROBE_MAX": "200ms",
		"RELAY_DEFER_AFTER": "200ms", "RELAY_OVERFLOW_AFTER": "400ms", "RELAY_DEFER_MIN": "50ms", "RELAY_DEFER_MAX": "300ms",
		"INFRAI_REQUEST_TIMEOUT": "500ms",
	})
}

// awaitDeferred waits until the table deferred has so many rows.
func awaitDeferred(w *scenario.World, t *testing.T, want int64, where string) {
	t.Helper()
	pgtest.Eventually(t, scenario.Patience, func() error {
		if got := w.Count(`select count(*) from outbox.deferred where ` + where); got != want {
			return fmt.Errorf("%d rows are deferred where %s, want %d", got, where, want)
		}
		return nil
	})
}

// noneLeft checks that nothing is deferred any more.
func noneLeft(w *scenario.World, t *testing.T) {
	t.Helper()
	awaitDeferred(w, t, 0, "true")
}

// OUT-01: the queue is down. Messages go to the table in commit order, the slot
// moves on, and requests are probes, not one for each message. When the queue
// is back everything arrives in order, also what was committed meanwhile and
// through a kill.
func TestPromise5_DeadQueueDoesNotPinWAL(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t))
	down := w.Fault(emulator.Fault{Route: "queue.publish", Status: 503})
	p := process(t, w, nil)
	keys := []string{"a", "b", "c", "d", "e", ""}
	messages := scenario.Batch("m", 6000, keys...)
	for i := 0; i < 4000; i += 50 {
		w.Commit(w.Conn, messages[i:i+50]...)
	}
	awaitDeferred(w, t, 4000, "true")
	w.AwaitSlot()
	kill(t, p)
	process(t, w, nil)
	for i := 4000; i < 5000; i += 50 {
		w.Commit(w.Conn, messages[i:i+50]...)
	}
	awaitDeferred(w, t, 5000, "true")
	w.AwaitSlot()
	// Those in flight when it went down, and a few probes a second for as long as it
	// takes: far from one for each message.
	if got := len(w.Published()); got > 2500 {
		t.Errorf("%d requests to a queue that is down, want probes only", got)
	}
	w.Queue.RemoveFault(down)
	for i := 5000; i < 6000; i += 50 {
		w.Commit(w.Conn, messages[i:i+50]...)
	}
	w.Settle()
	noneLeft(w, t)
}

// ORD-04: a message that always fails holds back its own
// lane at most. The slot moves on, and after its attempts it is a dead letter.
func TestORD04_PoisonHoldsBackItsOwnLane(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t)).With(map[string]string{"RELAY_MAX_ATTEMPTS": "12"})
	w.Fault(emulator.Fault{Key: "poison", Status: 500})
	w.Start()
	poison := scenario.Message{Key: "poison", OrderingKey: "p"}
	w.Insert(scenario.Message{Key: "before", OrderingKey: "p"})
	w.Commit(w.Conn, poison)
	behind := scenario.Batch("behind", 5, "p")
	w.Insert(behind...)
	awaitDeferred(w, t, 1, "reason = 'transient' and last_status = 500 and attempts > 0 and not_before is not null")
	w.AwaitSlot()
	// Others get through, all the time: that is what makes its failures count.
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	others := make(chan int, 1)
	conn := w.Connect()
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			if err := w.TryCommit(conn, scenario.Message{Key: fmt.Sprintf("other-%d", n), OrderingKey: "o"}); err != nil {
				t.Errorf("commit: %v", err)
				break
			}
		}
		others <- n
	}()
	pgtest.Eventually(t, scenario.Patience, func() error {
		if w.Count(`select count(*) from outbox.dead_letters where reason = 'attempts_exhausted' and last_status = 500`) == 0 {
			return fmt.Errorf("no dead letter yet; deferred: %d", w.Count(`select count(*) from outbox.deferred`))
		}
		return nil
	})
	stop()
	if n := <-others; n == 0 {
		t.Error("nothing else was written: the test shows nothing")
	}
	w.Forget("poison")
	w.Settle()
	noneLeft(w, t)
	for _, m := range append(behind, scenario.Message{Key: "before"}) {
		if w.Requests(m.Key) == 0 {
			t.Errorf("%s never went out", m.Key)
		}
	}
}

// A queue that is slower than its messages come overflows into the table: the
// slot does not wait for it, and order is kept through the overflow.
func TestSlowQueue_OverflowsIntoTheTable(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t)).With(map[string]string{"RELAY_MAX_IN_FLIGHT_PER_QUEUE": "2", "RELAY_WINDOW_MESSAGES": "200"})
	slow := w.Fault(emulator.Fault{Route: "queue.publish", Store: true, Delay: 200 * time.Millisecond})
	r := w.Start()
	r.AwaitLog("session began")
	messages := scenario.Batch("m", 1500, "a", "b", "c", "")
	for i := 0; i < len(messages); i += 50 {
		w.Commit(w.Conn, messages[i:i+50]...)
	}
	w.AwaitSlot()
	if accepted := len(w.Queue.Accepted("")); accepted == len(messages) {
		t.Error("everything was accepted already: the queue was not slow")
	}
	w.Queue.RemoveFault(slow)
	w.Settle()
	noneLeft(w, t)
}

// A message that is deleted while it is deferred is withdrawn: it is not sent.
func TestWithdrawn_DeletedWhileDeferred(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t))
	down := w.Fault(emulator.Fault{Route: "queue.publish", Status: 503})
	w.Start()
	first := scenario.Message{Key: "first", OrderingKey: "a"}
	w.Insert(first)
	w.AwaitRequest("first")
	awaitDeferred(w, t, 1, "true")
	w.Exec(`insert into outbox.messages (key, queue, ordering_key, payload) values ('withdrawn', 'orders', 'a', '{}')`)
	awaitDeferred(w, t, 2, "true")
	w.Exec(`delete from outbox.messages where key = 'withdrawn'`)
	w.Insert(scenario.Message{Key: "last", OrderingKey: "a"})
	w.Queue.RemoveFault(down)
	w.Settle()
	noneLeft(w, t)
	if got := w.Requests("withdrawn"); got != 0 {
		t.Errorf("%d requests for a withdrawn message", got)
	}
}

// A message for later waits in the table, not in the WAL; it can be withdrawn,
// and others of its ordering key do not wait for it.
func TestDeliverAt_WaitsInTheTable(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	w.Start()
	w.Exec(`insert into outbox.messages (key, queue, ordering_key, payload, deliver_at) values
		('far', 'orders', 'a', '{}', now() + interval '30 days'), ('near', 'orders', 'a', '{}', now() + interval '1 hour')`)
	awaitDeferred(w, t, 2, "reason = 'scheduled' and not_before = (select deliver_at from outbox.messages where id = message_id)")
	// Only now: it must be in the table before its time has come.
	w.Exec(`update outbox.deferred set not_before = now() + interval '2 seconds'
		where message_id = (select id from outbox.messages where key = 'near')`)
	w.Insert(scenario.Message{Key: "now", OrderingKey: "a"})
	w.AwaitAccepted()
	w.AwaitSlot()
	w.AwaitRequest("near")
	w.Exec(`delete from outbox.messages where key = 'far'`)
	w.Exec(`update outbox.deferred set not_before = now()`) // as if the day had come
	noneLeft(w, t)
	if got := w.Requests("far"); got != 0 {
		t.Errorf("%d requests for a withdrawn message", got)
	}
}

// Unknown outcomes are remembered in the table: what may have been accepted
// longer ago than the queue remembers is marked as a possible duplicate.
func TestPossibleDuplicate_IsMarked(t *testing.T) {
	t.Parallel()
	// Five failures close the gate, and each of the others comes after a pause of half
	// of this at least: together they outlast the window on the fastest machine.
	const pause = "400ms"
	w := brisk(scenario.New(t)).With(map[string]string{
		"RELAY_KEY_WINDOW": "1s", "RELAY_PROBE_MIN": pause, "RELAY_PROBE_MAX": pause, "RELAY_DEFER_MIN": pause, "RELAY_DEFER_MAX": pause,
	})
	w.Fault(emulator.Fault{Key: "lost", Store: true, Cut: emulator.CutReset, Count: 12})
	w.Insert(scenario.Message{Key: "lost"}, scenario.Message{Key: "fine"})
	w.Start()
	w.Settle()
	if got := w.Count(`select count(*) from outbox.dispatched d join outbox.messages m on m.id = d.message_id
		where (m.key, d.possible_duplicate) in (('lost', true), ('fine', false))`); got != 2 {
		t.Errorf("%d messages are marked as they should be, want 2", got)
	}
}

// CDC-04, promise 5: the queue hangs. The slot moves on as soon as requests have
// timed out, and the walsender stays the same.
func TestHangingQueue_LetsTheSlotMoveOn(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t))
	hang := w.Fault(emulator.Fault{Route: "queue.publish", Hang: true})
	r := w.Start()
	r.AwaitLog("session began")
	w.Insert(scenario.Batch("m", 300, strings.Split("abcdefghij", "")...)...)
	w.AwaitSlot()
	awaitDeferred(w, t, 300, "true")
	w.Queue.RemoveFault(hang)
	w.Settle()
	noneLeft(w, t)
	if sessions := r.Logs().FilterMessage("session began").Len(); sessions != 1 {
		t.Errorf("%d sessions, want 1", sessions)
	}
}
