package scenario_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

const (
	lanes       = 100
	laneWriters = 4
	// lanePause is the pause of a writer between two messages: 200 a second in
	// all, which leaves room on two cores with the race detector and other tests.
	lanePause = 20 * time.Millisecond
)

// departures are when the transaction of each key began.
type departures struct {
	mu sync.Mutex
	at map[string]time.Time
}

// writeLanes commits messages over all lanes at a steady rate until stop is
// called.
func (d *departures) writeLanes(t *testing.T, w *scenario.World) (stop func()) {
	t.Helper()
	enough, end := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for writer := range laneWriters {
		conn := w.Connect()
		group.Go(func() {
			ticker := time.NewTicker(lanePause)
			defer ticker.Stop()
			for n := 0; enough.Err() == nil; n++ {
				// Each lane has one writer: its commit order is known.
				lane := writer + n%(lanes/laneWriters)*laneWriters
				m := scenario.Message{Key: fmt.Sprintf("lane%d-%d", lane, n), OrderingKey: fmt.Sprintf("lane%d", lane)}
				d.mu.Lock()
				d.at[m.Key] = time.Now()
				d.mu.Unlock()
				if err := w.TryCommit(conn, m); err != nil {
					t.Errorf("commit: %v", err)
					return
				}
				select {
				case <-ticker.C:
				case <-enough.Done():
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { end(); group.Wait() })
	t.Cleanup(stop)
	return stop
}

// waits are the times from the start of a transaction to acceptance of the
// messages that set out in one of the spans, sorted; those of lane0 do not count.
// It waits until all of them are accepted.
func (d *departures) waits(t *testing.T, w *scenario.World, spans [][2]time.Time) (waits []time.Duration) {
	t.Helper()
	during := func(at time.Time) bool {
		return slices.ContainsFunc(spans, func(s [2]time.Time) bool { return !at.Before(s[0]) && at.Before(s[1]) })
	}
	pgtest.Eventually(t, scenario.Patience, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		sent := map[string]time.Time{}
		for key, at := range d.at {
			if during(at) && !strings.HasPrefix(key, "lane0-") {
				sent[key] = at
			}
		}
		waits = make([]time.Duration, 0, len(sent))
		for _, e := range w.Published() {
			if at, ours := sent[e.Key]; ours && e.Outcome == emulator.Accepted {
				waits = append(waits, e.Time.Sub(at))
			}
		}
		if len(waits) < len(sent) {
			return fmt.Errorf("%d of %d messages are accepted", len(waits), len(sent))
		}
		return nil
	})
	slices.Sort(waits)
	return waits
}

// Promise 6, ORD-04: one of a hundred lanes has a message that the queue answers
// with 500 for ever. The others keep their latency, the slot moves on, the
// culprit is listed with its reason, and after a redrive it arrives with its key.
func TestPromise6_OnePoisonAmongAHundredLanes(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{
		"RELAY_STATUS_INTERVAL": "100ms", "RELAY_SILENCE_TIMEOUT": "10s",
		"RELAY_DEFER_AFTER": "1s", "RELAY_DEFER_MIN": "500ms", "RELAY_DEFER_MAX": "1s",
		"RELAY_MAX_ATTEMPTS": "1000", // until the last poison: the others get through in the end
	})
	process(t, w, nil)
	left := departures{at: map[string]time.Time{}}
	stop := left.writeLanes(t, w)
	w.AwaitRequest("lane99-24") // every lane has had its first message

	// A machine that is busy with something else may be so in one half of a measurement
	// only. Who waits for a stranger does so in all of them.
	for try := 1; ; try++ {
		without, with := left.measure(t, w, try)
		err := compareWaits(t, left.waits(t, w, without), left.waits(t, w, with))
		if err == nil {
			break
		}
		if try == measurements {
			t.Error(err)
			break
		}
		t.Log(err)
	}

	setQueue(t, operator(w), operate.Settings{"max_attempts": 8})
	fault := w.Fault(emulator.Fault{Key: "poison", Status: http.StatusInternalServerError, Code: "BROKEN"})
	w.Exec(`insert into outbox.messages (key, queue, ordering_key, payload) values ('poison', 'orders', 'lane0', '{"of": "lane0"}')`)
	w.Forget("poison")
	committed := w.WAL()
	w.AwaitRequest("poison")
	pgtest.Eventually(t, scenario.Patience, func() error {
		if confirmed := w.Confirmed(); confirmed < committed {
			return fmt.Errorf("the confirmed flush is at %d, the poison was committed at %d", confirmed, committed)
		}
		return nil
	})
	awaitDeadLetters(t, w, 1)
	stop()
	w.Settle()
	noneLeft(w, t)
	culpritComesBack(t, w, fault)
}

// measurements is how often the waits are measured before the test gives up.
const measurements = 5

// measure returns times without a poison and times with one, in turn, so that a
// machine that becomes slower does so for both.
func (d *departures) measure(t *testing.T, w *scenario.World, try int) (without, with [][2]time.Time) {
	t.Helper()
	for round := range 4 {
		began := time.Now()
		scenario.Throughout(t, time.Second, func() error { return nil })
		poisoned := time.Now()
		without = append(without, [2]time.Time{began, poisoned})
		key := fmt.Sprintf("poison-%d-%d", try, round)
		fault := w.Fault(emulator.Fault{Key: key, Status: http.StatusInternalServerError})
		w.Exec(`insert into outbox.messages (key, queue, ordering_key, payload) values ($1, 'orders', 'lane0', '{}')`, key)
		w.Forget(key) // its place in the order depends on when the fault ends
		scenario.Throughout(t, time.Second, func() error { return nil })
		with = append(with, [2]time.Time{poisoned, time.Now()})
		w.Queue.RemoveFault(fault)
	}
	return without, with
}

// compareWaits wants others to wait no longer than without a poison. The bounds
// are wide, since the machine may be busy; waiting for a stranger would take the
// backoff of the poison, half a second and more, every time.
func compareWaits(t *testing.T, without, with []time.Duration) error {
	t.Helper()
	if len(without) < lanes || len(with) < lanes {
		return fmt.Errorf("%d messages without a poison and %d with one show nothing", len(without), len(with))
	}
	at := func(waits []time.Duration, percent int) time.Duration { return waits[len(waits)*percent/100] }
	t.Logf("p50 %v without, %v with; p99 %v without, %v with", at(without, 50), at(with, 50), at(without, 99), at(with, 99))
	if calm, got := at(without, 50), at(with, 50); got > 3*calm+50*time.Millisecond {
		return fmt.Errorf("half of the other messages waited %v and longer, without a poison %v", got, calm)
	}
	if calm, got := at(without, 99), at(with, 99); got > 4*calm+400*time.Millisecond {
		return fmt.Errorf("one in a hundred of the other messages waited %v and longer, without a poison %v", got, calm)
	}
	return nil
}

// culpritComesBack lists the dead letter, mends its cause and redrives it, with
// the operator's verbs.
func culpritComesBack(t *testing.T, w *scenario.World, fault uint64) {
	t.Helper()
	verb := func(args ...string) string {
		t.Helper()
		p := relaybin.Run(t, w.Env, args...)
		p.AwaitExit(t, 0)
		return p.Stdout()
	}
	var list struct {
		DeadLetters []operate.DeadLetter `json:"dead_letters"`
	}
	if err := json.Unmarshal([]byte(verb("dead-letters", "list", "--json")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.DeadLetters) != 1 {
		t.Fatalf("dead letters are %+v, want the poison", list.DeadLetters)
	}
	d := list.DeadLetters[0]
	if d.Key != "poison" || d.OrderingKey != "lane0" || d.Reason != "attempts_exhausted" || d.LastStatus == nil || *d.LastStatus != 500 || d.LastCode != "BROKEN" {
		t.Errorf("the dead letter is %+v, want the poison of lane0 with status 500 and code BROKEN", d)
	}
	w.Queue.RemoveFault(fault)
	verb("dead-letters", "redrive", fmt.Sprint(d.MessageID))
	pgtest.Eventually(t, scenario.Patience, func() error {
		if !slices.ContainsFunc(w.Queue.Accepted(""), func(m emulator.Message) bool { return m.Key == "poison" }) {
			return errors.New("the poison is not accepted yet")
		}
		return nil
	})
	w.Same()
	awaitDeadLetters(t, w, 0)
}
