package scenario_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// holder is the pid of the walsender that serves the world's slot, 0 without
// one.
func holder(w *scenario.World) int {
	return int(w.Count(`select coalesce(active_pid, 0) from pg_replication_slots where slot_name = $1`, w.Env["RELAY_SLOT"]))
}

// CDC-04: the queue hangs for longer than wal_sender_timeout, and nothing more
// is read because the window is full. The server hears from the relay all the
// same.
func TestCDC04_QueueHangsLongerThanTheServerWaits(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{
		"RELAY_STATUS_INTERVAL": "1s", "RELAY_WAL_SENDER_TIMEOUT": "8s", "RELAY_TRUST_WINDOW": "2s",
		"RELAY_WINDOW_MESSAGES": "500", "RELAY_SILENCE_TIMEOUT": "10s", "INFRAI_REQUEST_TIMEOUT": "60s",
	})
	stuck := newValve()
	w.Before(stuck.front)
	r := w.Start()
	r.AwaitLog("session began")
	keys := make([]string, 50)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%d", i)
	}
	messages := scenario.Batch("m", 2000, keys...)
	for i := 0; i < len(messages); i += 50 {
		w.Commit(w.Conn, messages[i:i+50]...)
	}
	stuck.await(t, int64(len(keys)))
	pid := holder(w)
	if pid == 0 {
		t.Fatal("nobody holds the slot")
	}
	scenario.Throughout(t, 12*time.Second, func() error {
		if now := holder(w); now != pid {
			return fmt.Errorf("the slot is held by pid %d, was held by %d", now, pid)
		}
		return r.Alive()
	})
	close(stuck.open)
	w.Settle()
	if now := holder(w); now != pid {
		t.Errorf("the slot is held by pid %d, was held by %d", now, pid)
	}
	log, err := os.ReadFile(pgtest.Shared(t).LogFile())
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		if text := string(line); strings.Contains(text, fmt.Sprintf("[%d]", pid)) && strings.Contains(text, "timeout") {
			t.Errorf("the server's log: %s", text)
		}
	}
}

// CDC-11: the server is frozen: its connection is there and says nothing. The
// relay notices, says so, and goes on once the server does.
func TestCDC11_FrozenServer(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	w := scenario.On(t, cluster.Migrated(t)).With(map[string]string{
		"RELAY_STATUS_INTERVAL": "500ms", "RELAY_SILENCE_TIMEOUT": "6s", "RELAY_TRUST_WINDOW": "1s",
		"RELAY_RECONNECT_MAX": "500ms",
	})
	r := w.Start()
	r.AwaitLog("session began")
	w.Insert(scenario.Batch("before", 20, "a", "")...)
	w.AwaitAccepted()
	w.AwaitMarked()
	pid := holder(w)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // it may have ended
	w.Insert(scenario.Batch("meanwhile", 20, "a", "")...)
	r.AwaitLog("session ended")
	line := r.Logs().FilterMessage("session ended").All()[0].ContextMap()
	if text := fmt.Sprint(line["error"]); !strings.Contains(text, "silent") {
		t.Errorf("the session ended because of %q, want silence", text)
	}
	r.AwaitLog("slot is held by another session, standing by")
	w.Insert(scenario.Batch("after", 20, "a", "")...)
	if got := len(w.Queue.Accepted("")); got != 20 {
		t.Errorf("%d messages were accepted while the server was frozen, want the 20 before", got)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	w.Settle()
	if n := r.Logs().FilterMessage("session began").Len(); n != 2 {
		t.Errorf("%d sessions, want one before and one after", n)
	}
}
