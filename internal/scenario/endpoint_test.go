package scenario_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// lock is a front that takes one API key only, and notes when it refused.
type lock struct {
	key string

	mu      sync.Mutex
	refused []time.Time
}

func (l *lock) front(next http.Handler, _ <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer "+l.key {
			next.ServeHTTP(w, r)
			return
		}
		l.mu.Lock()
		l.refused = append(l.refused, time.Now())
		l.mu.Unlock()
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"ok":false,"error":{"code":"UNAUTHORIZED","message":"no such key"}}`)
	})
}

func (l *lock) refusals() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]time.Time(nil), l.refused...)
}

// HTTP-10: a key that is no longer valid sets nothing aside and is not shown
// again and again; when its file holds a new one, everything flows, without a
// restart.
func TestHTTP10_TheKeyIsReplaced(t *testing.T) {
	t.Parallel()
	const inFlight = 4
	file := filepath.Join(t.TempDir(), "key")
	write := func(key string) {
		fresh := file + ".new"
		if err := os.WriteFile(fresh, []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(fresh, file); err != nil {
			t.Fatal(err)
		}
	}
	write("key-of-yesterday")
	w := scenario.New(t).With(quick).With(map[string]string{
		"INFRAI_API_KEY_FILE": file, "RELAY_MAX_IN_FLIGHT": fmt.Sprint(inFlight),
		"RELAY_PROBE_MIN": "100ms", "RELAY_PROBE_MAX": "200ms",
	})
	delete(w.Env, "INFRAI_API_KEY")
	door := &lock{key: "the-key-of-today"}
	w.Before(door.front)
	messages := scenario.Batch("m", 300, "a", "b", "c", "")
	w.Commit(w.Conn, messages...)
	r := w.Start()
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := len(door.refusals()); n < 2*inFlight+5 {
			return fmt.Errorf("%d requests were refused", n)
		}
		return nil
	})
	noDeadLetters(t, w)
	probesOnly(t, door.refusals(), inFlight)
	write(door.key)
	w.Settle()
	noDeadLetters(t, w)
	if n := w.Count(`select count(*) from outbox.dispatched where attempts > 20`); n > 0 {
		t.Errorf("%d messages took more than 20 attempts", n)
	}
	if n := r.Logs().FilterMessage("sending paused").Len(); n != 1 {
		t.Errorf("%d lines about one pause", n)
	}
	for _, line := range r.Logs().All() {
		if text := fmt.Sprint(line.Message, line.ContextMap()); strings.Contains(text, "key-of") {
			t.Errorf("a key in the log: %s", text)
		}
	}
}

// HTTP-10: a 403 speaks of all messages, not of the one that met it.
func TestHTTP10_ForbiddenSetsNothingAside(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(quick)
	w.Fault(emulator.Fault{Route: "queue.publish", Status: http.StatusForbidden, Count: 12})
	w.Fault(emulator.Fault{Route: "queue.publish", Status: http.StatusPaymentRequired, Code: "INSUFFICIENT_CREDIT", Count: 3})
	w.Commit(w.Conn, scenario.Batch("m", 100, "a", "b", "")...)
	r := w.Start()
	w.Settle()
	noDeadLetters(t, w)
	if r.Logs().FilterMessage("endpoint is back").Len() == 0 {
		t.Error("no word about the end of the pause")
	}
}

// HTTP-10: a 400 speaks of one message: it is set aside, and its lane goes on.
func TestHTTP10_RefusedForOneMessageOnly(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(quick)
	w.Fault(emulator.Fault{Key: "m-4", Status: http.StatusBadRequest, Code: "INVALID_ARGUMENT"})
	messages := scenario.Batch("m", 20, "a", "b")
	for _, m := range messages {
		if m.Key == "m-4" {
			if err := scenario.Write(t.Context(), w.Conn, m); err != nil {
				t.Fatal(err)
			}
			continue
		}
		w.Insert(m)
	}
	w.Start()
	w.AwaitAccepted()
	w.AwaitMarked()
	w.AwaitSlot()
	w.Order()
	dead := w.Count(`select count(*) from outbox.dead_letters d join outbox.messages m on m.id = d.message_id
		where m.key = 'm-4' and d.reason = 'refused' and d.attempts = 1 and d.last_status = 400 and d.last_code = 'INVALID_ARGUMENT'
			and d.request_id <> ''`)
	if all := w.Count(`select count(*) from outbox.dead_letters`); dead != 1 || all != 1 {
		t.Errorf("%d dead letters, %d of them the right one, want 1", all, dead)
	}
	if got := w.Requests("m-4"); got != 1 {
		t.Errorf("%d requests for the refused message, want 1", got)
	}
}

// HTTP-10: a 404 speaks of one queue: it pauses, and the others go on.
func TestHTTP10_AMissingQueuePausesAlone(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(quick)
	r := w.Start()
	r.AwaitLog("session began")
	for i := range 30 {
		w.Insert(scenario.Message{Key: fmt.Sprintf("ghost-%d", i), Queue: "ghosts", OrderingKey: fmt.Sprint(i % 3)})
	}
	r.AwaitLog("sending paused")
	others := scenario.Batch("m", 100, "a", "b", "")
	w.Insert(others...)
	pgtest.Eventually(t, scenario.Patience, func() error {
		if got := len(w.Queue.Accepted(scenario.QueueName)); got != len(others) {
			return fmt.Errorf("%d messages of the queue that is there, want %d", got, len(others))
		}
		return nil
	})
	if got := w.Count(`select count(*) from outbox.dead_letters`); got != 0 {
		t.Errorf("%d dead letters, want none", got)
	}
	if err := w.Queue.SetSettings(emulator.Settings{AutoCreate: "on"}); err != nil {
		t.Fatal(err)
	}
	w.Settle()
	r.AwaitLog("queue is back")
	line := r.Logs().FilterMessage("sending paused").All()[0].ContextMap()
	if line["queue"] != "ghosts" || line["status"] != int64(http.StatusNotFound) {
		t.Errorf("the line says %v", line)
	}
}
