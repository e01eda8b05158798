package scenario_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// counted lets a request take its time on a busy machine: one that the relay gave
// up would be one more.
var counted = map[string]string{"INFRAI_REQUEST_TIMEOUT": "1m"}

// operator acts on the world's database, beside the relay.
func operator(w *scenario.World) *operate.Operator {
	o := operate.New(w.Connect(), "outbox")
	o.Pause = 0
	return o
}

// setQueue changes settings of the queue orders.
func setQueue(t *testing.T, o *operate.Operator, settings operate.Settings) {
	t.Helper()
	if err := o.Set(context.Background(), scenario.QueueName, settings); err != nil {
		t.Fatal(err)
	}
}

// redriveAll sends every dead letter again.
func redriveAll(t *testing.T, o *operate.Operator, want int) {
	t.Helper()
	ids, gone, err := o.DeadLetterIDs(context.Background(), operate.Filter{})
	if err != nil || len(ids) != want || len(gone) != 0 {
		t.Fatalf("dead letters are %v, without message %v, %v, want %d", ids, gone, err, want)
	}
	if done, err := o.Redrive(context.Background(), ids, func(int) {}); err != nil || done != want {
		t.Fatalf("%d redriven, %v, want %d", done, err, want)
	}
}

func awaitDeadLetters(t *testing.T, w *scenario.World, want int64) {
	t.Helper()
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := w.Count(`select count(*) from outbox.dead_letters`); n != want {
			return fmt.Errorf("%d dead letters, want %d", n, want)
		}
		return nil
	})
}

// A refused message becomes a dead letter while its lane goes on. Once the
// cause is mended it is redriven, and arrives with the same key and bytes.
func TestRedrive_ArrivesWithTheSameKey(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t)).With(counted)
	refusal := w.Fault(emulator.Fault{Key: "refused", Status: http.StatusUnprocessableEntity, Code: "INVALID"})
	w.Start()
	w.Insert(scenario.Message{Key: "refused"}, scenario.Message{Key: "other"})
	awaitDeadLetters(t, w, 1)
	if got := w.Count(`select attempts from outbox.dead_letters where reason = 'refused' and last_status = 422 and last_code = 'INVALID'`); got != 1 {
		t.Errorf("%d attempts, want 1", got)
	}
	w.Queue.RemoveFault(refusal)
	redriveAll(t, operator(w), 1)
	w.Settle() // among others: all requests of a key have the same bytes
	noneLeft(w, t)
	noDeadLetters(t, w)
	if got := w.Count(`select attempts from outbox.dispatched join outbox.messages on id = message_id where key = 'refused'`); got != 2 {
		t.Errorf("%d attempts, want those of before and one", got)
	}
}

// Redriven messages keep their place: before what is deferred behind them, and
// in their own order, whether the queue is paused at that moment or not.
func TestRedrive_KeepsThePlaceInTheLane(t *testing.T) {
	t.Parallel()
	for name, paused := range map[string]bool{"live": false, "paused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := brisk(scenario.New(t)).With(map[string]string{
				"RELAY_DEFER_MIN": "2s", "RELAY_DEFER_MAX": "2s", "RELAY_MAX_ATTEMPTS": "100000", // it fails until it is mended
			})
			o := operator(w)
			var dead []scenario.Message
			for i, m := range scenario.Batch("refused", 150, "a", "b") {
				m.Key = fmt.Sprintf("refused-%03d", i)
				dead = append(dead, m)
			}
			refusal := w.Fault(emulator.Fault{KeyPrefix: "refused-", Status: http.StatusUnprocessableEntity})
			r := w.Start()
			w.Commit(w.Conn, dead...)
			awaitDeadLetters(t, w, int64(len(dead)))
			failing := w.Fault(emulator.Fault{KeyPrefix: "behind-", Status: http.StatusInternalServerError})
			stop := w.Writers(1) // others get through
			if paused {
				setQueue(t, o, operate.Settings{"paused": true})
				r.AwaitLog("settings of a queue changed")
			}
			behind := scenario.Batch("behind", 30, "a", "b")
			w.Commit(w.Conn, behind...)
			pgtest.Eventually(t, scenario.Patience, func() error {
				if n := w.Count(`select count(*) from outbox.deferred where ordering_key in ('a', 'b')`); n != int64(len(behind)) {
					return fmt.Errorf("%d of both lanes are deferred", n)
				}
				return nil
			})
			w.Queue.RemoveFault(refusal)
			last := dead[len(dead)-2:] // of each lane
			before := []int{w.Requests(last[0].Key), w.Requests(last[1].Key)}
			redriveAll(t, o, len(dead))
			if paused {
				setQueue(t, o, operate.Settings{"paused": false})
			}
			// They do not come behind what cannot go out. What does may have left the
			// table before they were in it, and goes on failing until they went out.
			for i, m := range last {
				pgtest.Eventually(t, scenario.Patience, func() error {
					if w.Requests(m.Key) == before[i] {
						return fmt.Errorf("%s has not gone out again", m.Key)
					}
					return nil
				})
			}
			w.Queue.RemoveFault(failing)
			stop()
			w.Settle()
			noneLeft(w, t)
			noDeadLetters(t, w)
		})
	}
}

// A redrive without cure becomes a dead letter again, and nothing waits for it.
func TestRedrive_RefusedAgain(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t)).With(counted)
	w.Fault(emulator.Fault{Key: "refused", Status: http.StatusBadRequest})
	w.Start()
	w.Insert(scenario.Message{Key: "refused"})
	awaitDeadLetters(t, w, 1)
	redriveAll(t, operator(w), 1)
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := w.Count(`select coalesce(sum(attempts), 0) from outbox.dead_letters`); n != 2 {
			return fmt.Errorf("dead letters have %d attempts, want 2", n)
		}
		return nil
	})
	noneLeft(w, t)
}

// A paused queue gets nothing, its messages wait in the table, the slot moves
// on, and after the pause everything arrives in order.
func TestPausedQueue_KeepsItsMessages(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t)).With(counted)
	o := operator(w)
	r := w.Start()
	w.Insert(scenario.Message{Key: "before", OrderingKey: "a"})
	w.AwaitAccepted()
	setQueue(t, o, operate.Settings{"paused": true})
	r.AwaitLog("settings of a queue changed")
	sent := len(w.Published())
	messages := scenario.Batch("m", 300, "a", "b", "")
	for i := 0; i < len(messages); i += 10 {
		w.Commit(w.Conn, messages[i:i+10]...)
	}
	awaitDeferred(w, t, 300, "true")
	w.AwaitSlot()
	scenario.Throughout(t, time.Second, func() error {
		if n := len(w.Published()); n != sent {
			return fmt.Errorf("%d requests to a paused queue", n-sent)
		}
		return r.Alive()
	})
	setQueue(t, o, operate.Settings{"paused": false})
	w.Insert(scenario.Message{Key: "after", OrderingKey: "a"})
	w.Settle()
	noneLeft(w, t)
}

// A scheduled message that is released goes out at once.
func TestScheduled_IsReleased(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t))
	w.Start()
	w.Exec(`select outbox.enqueue('later', 'orders', '{}', ordering_key => 'a', deliver_at => now() + interval '1 day')`)
	w.Committed(scenario.Message{Key: "later", OrderingKey: "a"})
	awaitDeferred(w, t, 1, "reason = 'scheduled'")
	o := operator(w)
	ids, err := o.WaitingIDs(context.Background(), operate.Scheduled, operate.Filter{Key: "later"})
	if err != nil || len(ids) != 1 {
		t.Fatalf("scheduled are %v, %v", ids, err)
	}
	if n, err := o.MakeDue(context.Background(), operate.Scheduled, ids); err != nil || n != 1 {
		t.Fatalf("%d are due, %v", n, err)
	}
	w.Settle()
	noneLeft(w, t)
}

// A message that waits for its next attempt does not wait longer than the
// operator wants.
func TestDeferred_IsRetriedNow(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t)).With(counted).With(map[string]string{"RELAY_DEFER_MIN": "1h", "RELAY_DEFER_MAX": "1h"})
	failing := w.Fault(emulator.Fault{Key: "failing", Status: http.StatusInternalServerError})
	w.Start()
	stop := w.Writers(1) // others get through: the failure is the message's own
	w.Insert(scenario.Message{Key: "failing", OrderingKey: "a"}, scenario.Message{Key: "behind", OrderingKey: "a"})
	awaitDeferred(w, t, 1, "not_before > now() + interval '1 minute'")
	w.Queue.RemoveFault(failing)
	o := operator(w)
	ids, err := o.WaitingIDs(context.Background(), operate.Retries, operate.Filter{Queue: scenario.QueueName})
	if err != nil || len(ids) != 1 {
		t.Fatalf("waiting are %v, %v", ids, err)
	}
	if n, err := o.MakeDue(context.Background(), operate.Retries, ids); err != nil || n != 1 {
		t.Fatalf("%d are due, %v", n, err)
	}
	stop()
	w.Settle()
	noneLeft(w, t)
}
