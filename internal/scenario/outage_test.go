package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// awaitLife commits a message and waits until the queue has it.
func awaitLife(t *testing.T, w *scenario.World, key string) {
	t.Helper()
	w.Insert(scenario.Message{Key: key})
	w.AwaitRequest(key)
}

// OUT-02: Postgres restarts in every way, and stays away for a while. The relay
// waits for it and goes on.
func TestOUT02_PostgresRestarts(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	w := scenario.On(t, cluster.Migrated(t)).With(map[string]string{
		"RELAY_RECONNECT_MAX": "500ms", "RELAY_SHUTDOWN_PAUSE": "300ms",
		"RELAY_SILENCE_TIMEOUT": "5m", // it sees an end, and does not wait for silence
	})
	r := w.Start()
	r.AwaitLog("session began")
	stop := w.Writers(3)
	restarts := []struct {
		name    string
		restart func() error
	}{
		{"immediate", func() error { return cluster.Restart("immediate") }},
		{"fast", func() error { return cluster.Restart("fast") }},
		{"killed", func() error {
			if err := cluster.Kill(); err != nil {
				return err
			}
			return cluster.Start(context.Background())
		}},
		{"away", func() error {
			if err := cluster.Stop("fast"); err != nil {
				return err
			}
			scenario.Throughout(t, 3*time.Second, r.Alive)
			return cluster.Start(context.Background())
		}},
		{"again", func() error { return cluster.Restart("immediate") }},
	}
	for _, round := range restarts {
		awaitLife(t, w, "before-"+round.name)
		if err := round.restart(); err != nil {
			t.Fatalf("%s: %v", round.name, err)
		}
		w.Reconnect()
		ready := time.Now()
		awaitLife(t, w, "after-"+round.name)
		if took := time.Since(ready); took > time.Minute {
			t.Errorf("%s: alive %s after the server was ready", round.name, took)
		}
	}
	stop()
	w.Settle()
	// One line for each kind of trouble in a round, not one for each attempt.
	if n := r.Logs().FilterMessage("stream cannot be opened, will be tried again").Len(); n > 8*len(restarts) {
		t.Errorf("%d lines about %d restarts", n, len(restarts))
	}
}

// OUT-03: the host of a relay vanishes without a word. The next one waits for
// the server to notice, says for whom it waits, and leaves the slot alone.
func TestOUT03_TheHostVanishes(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{
		// The second relay has to be there before the server notices.
		"RELAY_STATUS_INTERVAL": "1s", "RELAY_WAL_SENDER_TIMEOUT": "15s", "RELAY_TRUST_WINDOW": "1s",
	})
	proxy := w.Proxy()
	hang := w.Fault(emulator.Fault{KeyPrefix: "late", Hang: true})
	first := process(t, w, nil)
	w.Insert(scenario.Batch("early", 50, "a", "b", "")...)
	w.AwaitAccepted()
	w.AwaitMarked()
	w.Insert(scenario.Batch("late", 50, "a", "b", "")...)
	w.AwaitRequest("late-0")
	holder := w.Count(`select active_pid from pg_replication_slots where slot_name = $1`, w.Env["RELAY_SLOT"])
	proxy.Freeze()
	kill(t, first)
	w.Queue.RemoveFault(hang)

	w.Env["DATABASE_URL"] = w.URL
	second := relaybin.Run(t, w.Env, "run")
	line := second.AwaitLog(t, "slot is held by another session, standing by")
	if line.Fields["holder_pid"] != fmt.Sprint(holder) || line.Fields["application"] != fmt.Sprintf("outbox-relay %d@%s", first.PID(), hostname(t)) {
		t.Errorf("the line does not say for whom it waits (pid %d): %s", holder, line.Text)
	}
	second.AwaitLog(t, "session began")
	w.Settle()
	for _, line := range second.Log().Lines() {
		if line.Message() == "making the slot" || line.Level() == "error" {
			t.Errorf("the second relay: %s", line.Text)
		}
	}
}

func hostname(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// OUT-06: Postgres can be shut down while the relay is connected, and also
// while the relay holds the confirmed flush back because the queue hangs.
func TestOUT06_PostgresCanBeShutDown(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{"wal_sender_timeout": "60s"}})
	w := scenario.On(t, cluster.Migrated(t)).With(map[string]string{
		"RELAY_WAL_SENDER_TIMEOUT": "60s", "RELAY_RECONNECT_MAX": "500ms", "RELAY_SHUTDOWN_PAUSE": "500ms",
		"INFRAI_REQUEST_TIMEOUT": "60s",
	})
	slow := newValve()
	w.Before(slow.front)
	r := w.Start()
	r.AwaitLog("session began")
	const most = 25 * time.Second
	shutDown := func(what string) {
		t.Helper()
		sessions := r.Logs().FilterMessage("session began").Len()
		began := time.Now()
		if err := cluster.Stop("fast"); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if took := time.Since(began); took > most {
			t.Errorf("%s: the shutdown took %s, want less than %s", what, took, most)
		}
		if err := cluster.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		w.Reconnect()
		pgtest.Eventually(t, scenario.Patience, func() error {
			if r.Logs().FilterMessage("session began").Len() == sessions {
				return errors.New("no new session")
			}
			return nil
		})
	}
	// Without the relay's help the server would wait for as long as a request may
	// hang; a busy machine takes its time for the checkpoint.
	shutDown("idle")
	messages := scenario.Batch("m", 3, "a")
	w.Insert(messages[0])
	committed := w.WAL()
	w.Insert(messages[1:]...)
	slow.await(t, 1)
	shutDown("hanging")
	if confirmed := w.Confirmed(); confirmed >= committed {
		t.Errorf("the confirmed flush %d has passed the first message at %d", confirmed, committed)
	}
	close(slow.open)
	w.Settle()
}

// Which connections of the relay a test ends.
const (
	sqlBackends = `backend_type = 'client backend'`
	walSender   = `backend_type = 'walsender'`
	both        = `true`
)

// cut ends connections of the world's relays, on the server.
func cut(w *scenario.World, which string) {
	w.Exec(`select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and application_name like 'outbox-relay%' and ` + which)
}

// OUT-08: only some of the relay's connections die, again and again, under
// load.
func TestOUT08_OneConnectionDies(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_RECONNECT_MIN": "50ms", "RELAY_RECONNECT_MAX": "200ms"})
	r := w.Start()
	r.AwaitLog("session began")
	stop := w.Writers(3)
	for round := range 5 {
		for i, which := range []string{sqlBackends, walSender, both} {
			awaitLife(t, w, fmt.Sprintf("life-%d-%d", round, i))
			cut(w, which)
		}
	}
	stop()
	w.Settle()
}

// OUT-08: what was accepted and not yet marked when a connection died is marked
// without a second request.
func TestOUT08_AcceptedIsMarkedWithoutAnotherRequest(t *testing.T) {
	t.Parallel()
	for name, which := range map[string]string{"sql": sqlBackends, "walsender": walSender, "both": both} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := scenario.New(t).With(map[string]string{
				"RELAY_OUTCOME_LINGER": "10m", "RELAY_OUTCOME_BATCH": "100000", "RELAY_RECONNECT_MIN": "50ms", "RELAY_RECONNECT_MAX": "200ms",
				"RELAY_MAX_IN_FLIGHT": "1", "RELAY_OVERFLOW_AFTER": "10m",
			})
			r := w.Start()
			r.AwaitLog("session began")
			w.Insert(scenario.Batch("m", 100, "a", "b", "")...)
			w.AwaitAccepted()
			awaitLife(t, w, "then") // one at a time goes out: the answers to all others are there
			if marked := w.Count(`select count(*) from outbox.dispatched`); marked != 0 {
				t.Fatalf("%d messages are marked: the cut comes too late to show anything", marked)
			}
			cut(w, which)
			if which != sqlBackends {
				r.AwaitLog("session ended")
			}
			awaitLife(t, w, "after")
			w.AwaitAccepted()
			if err := r.Stop(); err != nil {
				t.Fatal(err)
			}
			if marked := w.Count(`select count(*) from outbox.dispatched`); marked != 102 {
				t.Errorf("%d messages are marked, want 102", marked)
			}
			for _, m := range w.Keys() {
				if got := w.Requests(m.Key); got != 1 && m.Key != "then" {
					t.Errorf("%d requests for %s, want 1", got, m.Key)
				}
			}
		})
	}
}
