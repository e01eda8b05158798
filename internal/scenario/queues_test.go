package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// firstAccepted are the keys in the order in which the queue accepted them first.
func firstAccepted(w *scenario.World) (keys []string) {
	seen := map[string]bool{}
	for _, m := range w.Queue.Accepted("") {
		if !seen[m.Key] {
			seen[m.Key] = true
			keys = append(keys, m.Key)
		}
	}
	return keys
}

// inCommitOrder checks that all committed messages were first accepted in the
// order of their commits, whatever their ordering keys.
func inCommitOrder(t *testing.T, w *scenario.World) {
	t.Helper()
	accepted := firstAccepted(w)
	for i, m := range w.Keys() {
		if i >= len(accepted) || accepted[i] != m.Key {
			t.Fatalf("at place %d of %d accepted keys is not %s", i, len(accepted), m.Key)
		}
	}
}

// A queue that is ordered as a whole is one lane: with and without ordering
// keys, through failures of single messages, deferral and a restart.
func TestQueueSettings_OrderedByQueue(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t))
	setQueue(t, operator(w), operate.Settings{"ordering": "queue"})
	w.Fault(emulator.Fault{KeyPrefix: "m-1", Status: http.StatusInternalServerError, Probability: 0.5, Seed: 1})
	w.Fault(emulator.Fault{KeyPrefix: "m-7", Status: http.StatusInternalServerError, Count: 6})
	r := w.Start()
	messages := scenario.Batch("m", 120, "a", "", "b")
	for i := 0; i < 60; i += 4 {
		w.Commit(w.Conn, messages[i:i+4]...)
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	w.Start()
	for i := 60; i < len(messages); i += 4 {
		w.Commit(w.Conn, messages[i:i+4]...)
	}
	w.Settle()
	inCommitOrder(t, w)
	noneLeft(w, t)
	noDeadLetters(t, w)
}

// The ordering of a queue changes while messages come: each ordering key stays
// in commit order throughout, and nothing is lost.
func TestQueueSettings_OrderingChanges(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t))
	o := operator(w)
	w.Fault(emulator.Fault{Route: "queue.publish", Status: http.StatusInternalServerError, Probability: 0.1, Seed: 3})
	r := w.Start()
	stop := w.Writers(3)
	pgtest.Eventually(t, scenario.Patience, func() error {
		if len(firstAccepted(w)) == 0 {
			return errors.New("nothing is accepted yet")
		}
		return nil
	})
	for range 3 {
		for _, ordering := range []string{"queue", "key"} {
			before := r.Logs().FilterMessage("settings of a queue changed").Len()
			setQueue(t, o, operate.Settings{"ordering": ordering})
			pgtest.Eventually(t, scenario.Patience, func() error {
				if r.Logs().FilterMessage("settings of a queue changed").Len() == before {
					return fmt.Errorf("ordering=%s is not picked up", ordering)
				}
				return nil
			})
		}
	}
	stop()
	w.Settle()
	noneLeft(w, t)
	noDeadLetters(t, w)
}

// A queue with a rate gets no more requests than that, from memory and from the
// table.
func TestQueueSettings_RatePerSecond(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t)).With(counted)
	const rate, messages = 40, 100
	setQueue(t, operator(w), operate.Settings{"rate_per_second": rate})
	w.Start()
	began := time.Now() // the first request may be under way for long
	w.Commit(w.Conn, scenario.Batch("m", messages)...)
	w.Settle()
	noneLeft(w, t)
	published := w.Published()
	if len(published) != messages {
		t.Fatalf("%d requests, want %d", len(published), messages)
	}
	const burst = rate / 20
	least := time.Duration(messages-burst-1) * time.Second / rate
	if took := published[len(published)-1].Time.Sub(began); took < least {
		t.Errorf("%d requests within %s, want at least %s", messages, took, least)
	}
}

// A lane whose queue wants that waits for a person when one of its messages
// becomes a dead letter, also over a restart; other lanes go on. After a redrive
// the message comes in its place; after it is discarded the others come alone.
func TestQueueSettings_DeadLetterHoldsItsLane(t *testing.T) {
	t.Parallel()
	for _, redriven := range []bool{true, false} {
		t.Run(map[bool]string{true: "redriven", false: "discarded"}[redriven], func(t *testing.T) {
			t.Parallel()
			w := brisk(scenario.New(t)).With(counted)
			o := operator(w)
			setQueue(t, o, operate.Settings{"on_dead_letter": "hold"})
			refusal := w.Fault(emulator.Fault{Key: "refused", Status: http.StatusUnprocessableEntity})
			r := w.Start()
			w.Insert(scenario.Message{Key: "before", OrderingKey: "a"}, scenario.Message{Key: "refused", OrderingKey: "a"})
			w.Insert(scenario.Batch("behind", 5, "a")...)
			w.Insert(scenario.Batch("other", 5, "b", "")...)
			awaitDeadLetters(t, w, 1)
			awaitDeferred(w, t, 6, "ordering_key = 'a'")
			if err := r.Stop(); err != nil {
				t.Fatal(err)
			}
			w.Start()
			w.Insert(scenario.Batch("later", 5, "a", "b")...)
			awaitDeferred(w, t, 9, "ordering_key = 'a'")
			w.AwaitSlot()
			pgtest.Eventually(t, scenario.Patience, func() error {
				if n := len(firstAccepted(w)); n != 1+5+2 {
					return fmt.Errorf("%d messages are accepted, want those before and of other lanes", n)
				}
				return nil
			})
			w.Queue.RemoveFault(refusal)
			if redriven {
				redriveAll(t, o, 1)
			} else {
				ids, _, err := o.DeadLetterIDs(context.Background(), operate.Filter{})
				if err != nil {
					t.Fatal(err)
				}
				if n, err := o.Discard(context.Background(), ids, "test"); err != nil || n != 1 {
					t.Fatalf("%d discarded, %v", n, err)
				}
				w.Forget("refused")
			}
			w.Settle()
			noneLeft(w, t)
			want := map[bool]int{true: 2, false: 1}[redriven]
			if got := w.Requests("refused"); got != want {
				t.Errorf("%d requests for the dead letter, want %d", got, want)
			}
		})
	}
}

// Lanes that wait for a person go on when the operator no longer wants that.
func TestQueueSettings_DeadLetterNoLongerHolds(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t))
	o := operator(w)
	setQueue(t, o, operate.Settings{"on_dead_letter": "hold"})
	w.Fault(emulator.Fault{Key: "refused", Status: http.StatusUnprocessableEntity})
	w.Start()
	w.Insert(scenario.Message{Key: "refused", OrderingKey: "a"})
	w.Insert(scenario.Batch("behind", 5, "a")...)
	awaitDeferred(w, t, 6, "ordering_key = 'a'")
	setQueue(t, o, operate.Settings{"on_dead_letter": "continue"})
	w.Forget("refused")
	w.Settle()
	noneLeft(w, t)
	awaitDeadLetters(t, w, 1)
}

// A message that was withdrawn stays so when the slot goes back behind it, as it
// does in a crash of the server.
func TestWithdrawn_StaysWithdrawn(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t))
	down := w.Fault(emulator.Fault{Route: "queue.publish", Status: http.StatusServiceUnavailable})
	r := w.Start()
	r.AwaitLog("session began")
	slot := w.Env["RELAY_SLOT"]
	w.Exec(`select pg_copy_logical_replication_slot($1, $2)`, slot, slot+"_before")
	w.Exec(`insert into outbox.messages (key, queue, ordering_key, payload) values ('withdrawn', 'orders', 'a', '{}')`)
	w.Forget("withdrawn")
	w.Insert(scenario.Message{Key: "kept", OrderingKey: "a"})
	awaitDeferred(w, t, 2, "true")
	w.Exec(`delete from outbox.messages where key = 'withdrawn'`)
	w.Queue.RemoveFault(down)
	w.Settle()
	noneLeft(w, t)
	if got := w.Count(`select count(*) from outbox.withdrawn`); got != 1 {
		t.Errorf("%d withdrawals are on record, want 1", got)
	}
	before := w.Requests("withdrawn")
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	w.Exec(`select pg_drop_replication_slot($1)`, slot)
	w.Exec(`select pg_copy_logical_replication_slot($1, $2)`, slot+"_before", slot)
	w.Exec(`select pg_drop_replication_slot($1)`, slot+"_before")
	w.Start()
	w.Insert(scenario.Message{Key: "after", OrderingKey: "a"})
	w.Settle()
	noneLeft(w, t)
	if got := w.Requests("withdrawn"); got != before {
		t.Errorf("%d requests for a withdrawn message after it was shown again", got-before)
	}
}

// A dead letter whose outcome once was unknown is a possible duplicate when it
// is redriven after the queue has forgotten its key.
func TestRedrive_PossibleDuplicate(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t)).With(map[string]string{"RELAY_KEY_WINDOW": "1s"})
	w.Fault(emulator.Fault{Key: "lost", Store: true, Hang: true, Count: 1})
	refusal := w.Fault(emulator.Fault{Key: "lost", Status: http.StatusUnprocessableEntity})
	w.Start()
	w.Insert(scenario.Message{Key: "lost"})
	awaitDeadLetters(t, w, 1)
	w.Queue.RemoveFault(refusal)
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := w.Count(`select count(*) from outbox.dead_letters where unknown_since < now() - interval '1 second'`); n != 1 {
			return fmt.Errorf("%d dead letters with an unknown outcome longer ago than the window", n)
		}
		return nil
	})
	redriveAll(t, operator(w), 1)
	w.Settle()
	if got := w.Count(`select count(*) from outbox.dispatched where possible_duplicate`); got != 1 {
		t.Errorf("%d possible duplicates are marked, want 1", got)
	}
}

// A queue that fails while another is healthy is paused alone: the endpoint is
// not, and nothing waits in its place.
func TestBreaker_OneQueueFailsAlone(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t)).With(counted)
	if err := w.Queue.SetSettings(emulator.Settings{AutoCreate: "on"}); err != nil {
		t.Fatal(err)
	}
	down := w.Fault(emulator.Fault{Queue: scenario.QueueName, Status: http.StatusServiceUnavailable})
	r := w.Start()
	for i := range 40 {
		w.Insert(scenario.Message{Key: fmt.Sprintf("order-%d", i), OrderingKey: fmt.Sprint("o", i%7)},
			scenario.Message{Key: fmt.Sprintf("mail-%d", i), OrderingKey: fmt.Sprint("m", i%7), Queue: "mails"})
	}
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := len(firstAccepted(w)); n != 40 {
			return fmt.Errorf("%d messages of the healthy queue are accepted, want 40", n)
		}
		return nil
	})
	// One closing of the endpoint may come first: five failures in a row, before
	// anything else had a turn.
	if n := r.Logs().FilterMessage("endpoint is back").Len(); n > 1 {
		t.Errorf("the endpoint was taken for closed %d times", n)
	}
	w.Queue.RemoveFault(down)
	w.Settle()
	noneLeft(w, t)
}
