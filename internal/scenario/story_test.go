package scenario_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/admin"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// What the page, /readyz, /status and the verb say of the same thing.

// status is the answer of /status, which looks at the database.
func (h *patient) status() (s admin.Status, err error) {
	_, body, err := h.ask(context.Background(), "/status")
	if err == nil {
		err = json.Unmarshal([]byte(body), &s)
	}
	return s, err
}

// tells waits until everything says what is asked for: the page, /status, /readyz
// by what either has read, and the verb.
func (h *patient) tells(w *scenario.World, texts ...string) {
	h.t.Helper()
	w.With(map[string]string{"RELAY_ADMIN_LISTEN": strings.TrimPrefix(h.url, "http://")})
	pgtest.Eventually(h.t, scenario.Patience, func() error {
		for _, path := range []string{"/live", "/status", "/readyz"} {
			switch _, body, err := h.ask(context.Background(), path); {
			case err != nil:
				return err
			case !has(body, texts):
				return fmt.Errorf("%s: no %q in %s", path, texts, body)
			}
		}
		return nil
	})
}

// forgets waits until nobody speaks of something any more.
func (h *patient) forgets(code string) {
	h.t.Helper()
	pgtest.Eventually(h.t, scenario.Patience, func() error {
		s, err := h.status()
		if err != nil {
			return err
		}
		for _, f := range append(s.Ready.Reasons, s.Ready.Warnings...) {
			if f.Code == code {
				return fmt.Errorf("%s: %s", f.Code, f.Text)
			}
		}
		return h.silent("warn " + code)
	})
}

func (h *patient) silent(text string) error {
	_, body, err := h.ask(context.Background(), "/readyz")
	if err == nil && strings.Contains(body, text) {
		err = fmt.Errorf("/readyz: %s", body)
	}
	return err
}

// A dead letter is told of until somebody has dealt with it, and not longer.
func TestStory_DeadLetters(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	h := examine(t, process(t, w, nil))
	w.Fault(emulator.Fault{Route: "queue.publish", Key: "refused", Status: 422})
	w.Insert(scenario.Message{Key: "refused"})
	h.tells(w, "1 dead letter needs a person")
	id := w.Count(`select message_id from outbox.dead_letters`)
	verb(t, w, 0, "dead-letters", "redrive", fmt.Sprint(id), "--yes")
	pgtest.Eventually(t, scenario.Patience, func() error { // and dies again
		s, err := h.status()
		if n := s.Relay.Totals.DeadLetters; err == nil && n != 2 {
			err = fmt.Errorf("%d dead letters", n)
		}
		return err
	})
	h.tells(w, "1 dead letter needs a person")
	verb(t, w, 0, "dead-letters", "discard", fmt.Sprint(id), "--why", "a test", "--yes")
	h.forgets("dead_letters")
	w.Forget("refused")
}

// hides makes a world whose publication leaves out some messages, and a relay in it.
func hides(t *testing.T, sweep string) (*scenario.World, *patient) {
	t.Helper()
	w := scenario.New(t).With(map[string]string{"RELAY_SWEEP_INTERVAL": sweep, "RELAY_CHECK_INTERVAL": "500ms"})
	if version(w) < 150000 {
		return w, nil // there are no row filters
	}
	h := examine(t, process(t, w, nil))
	w.Exec(`alter publication outbox_relay set table outbox.messages where (key not like 'hidden%')`)
	h.turnsGreen("warn publication")
	h.awaitSweep()
	return w, h
}

// Messages that a row filter hides are told of while they wait, with their queue and
// the time of the next sweep.
func TestStory_HiddenMessages(t *testing.T) {
	t.Parallel()
	w, h := hides(t, "10m")
	if h == nil {
		return
	}
	w.Insert(scenario.Batch("hidden", 30)...)
	h.tells(w, "30 messages have no outcome and are not in the relay", "memory (orders 30), the oldest ", "the next sweep in ")
	for _, want := range []string{"30 waiting (oldest ", "30 of them not in the relay's memory (the next sweep in ", "\nunseen "} {
		if got := verb(t, w, 0, "status"); !strings.Contains(got, want) {
			t.Errorf("status lacks %q:\n%s", want, got)
		}
	}
}

// What the sweep has found of them is told of as long as the filter is there, and
// after that until two sweeps in a row have found none.
func TestStory_RecoveredMessages(t *testing.T) {
	t.Parallel()
	w, h := hides(t, "2s")
	if h == nil {
		return
	}
	w.Insert(scenario.Message{Key: "hidden"})
	h.tells(w, "1 message was found in the table that the stream had not shown", "the cause is still there")
	w.AwaitAccepted()
	w.Exec(`alter publication outbox_relay set table outbox.messages`)
	h.forgets("recovered")
	w.Settle()
}

// awaitSweep waits until a sweep has come to its end.
func (h *patient) awaitSweep() {
	h.t.Helper()
	pgtest.Eventually(h.t, scenario.Patience, func() error {
		s, err := h.status()
		if err == nil && (s.Relay.Sweep == nil || s.Relay.Sweep.Passed == nil) {
			err = fmt.Errorf("the sweep is %+v", s.Relay.Sweep)
		}
		return err
	})
}
