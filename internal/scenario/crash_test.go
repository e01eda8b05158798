package scenario_test

import (
	"fmt"
	"maps"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// The crash points of docs/guarantees.md, on the built program.

// process starts the program with the world's settings and some others.
func process(t *testing.T, w *scenario.World, extra map[string]string) *relaybin.Process {
	t.Helper()
	env := maps.Clone(w.Env)
	maps.Copy(env, extra)
	p := relaybin.Run(t, env, "run")
	p.AwaitLog(t, "session began")
	return p
}

func kill(t *testing.T, p *relaybin.Process) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Fatalf("kill: %v", err)
	}
}

func TestCrash_WithRequestsHanging(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	hang := w.Fault(emulator.Fault{Route: "queue.publish", Hang: true})
	messages := scenario.Batch("m", 50, "a", "b", "c")
	w.Insert(messages...)
	p := process(t, w, nil)
	w.AwaitRequest("m-0")
	kill(t, p)
	w.Queue.RemoveFault(hang)
	process(t, w, nil)
	w.Settle()
}

// Killed after the queue accepted the messages and before that was recorded:
// they come again, with the same key and bytes, and the queue knows them.
func TestCrash_BetweenPublishAndMark(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	messages := scenario.Batch("m", 50, "a", "b", "c", "")
	w.Insert(messages...)
	p := process(t, w, map[string]string{"RELAY_OUTCOME_LINGER": "10m", "RELAY_OUTCOME_BATCH": "100000"})
	w.AwaitAccepted()
	kill(t, p)
	if marked := w.Count(`select count(*) from outbox.dispatched`); marked != 0 {
		t.Fatalf("%d messages are marked: the kill came too late to show anything", marked)
	}
	process(t, w, nil)
	w.Settle()
	for _, m := range messages {
		if got := w.Requests(m.Key); got != 2 {
			t.Errorf("%d requests for %s, want 2", got, m.Key)
		}
	}
	if got := len(w.Queue.Accepted("")); got != len(messages) {
		t.Errorf("the queue accepted %d messages, want %d: it must know the keys again", got, len(messages))
	}
}

// Killed in the drain: what was accepted and not recorded comes again.
func TestCrash_InTheDrain(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	w.Fault(emulator.Fault{Route: "queue.publish", Store: true, Delay: 300 * time.Millisecond})
	messages := scenario.Batch("m", 200, "a", "b", "c", "d")
	w.Insert(messages...)
	p := process(t, w, nil)
	w.AwaitRequest("m-4")
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.AwaitLog(t, "draining")
	kill(t, p)
	w.Queue.ClearFaults()
	process(t, w, nil)
	w.Settle()
}

// Killed at random moments, many times.
func TestCrash_AtAnyMoment(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	random := seeded(t)
	messages := scenario.Batch("m", 600, "a", "b", "c", "d", "e")
	for round := range 6 {
		w.Insert(messages[round*100 : (round+1)*100]...)
		p := process(t, w, nil)
		w.AwaitRequest(fmt.Sprintf("m-%d", round*100+random.IntN(100)))
		kill(t, p)
	}
	process(t, w, nil)
	w.Settle()
}

// CDC-08: a clean stop reports the last position: nothing is sent again.
func TestCDC08_CleanStopReportsTheLastPosition(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	messages := scenario.Batch("m", 20, "a")
	p := process(t, w, nil)
	w.Insert(messages[:19]...)
	ctx := t.Context()
	tx, err := w.Conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := scenario.Write(ctx, tx, messages[19]); err != nil {
		t.Fatal(err)
	}
	var before int64 // the commit comes behind this; other tests write WAL as well
	if err := tx.QueryRow(ctx, `select (pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&before); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	w.Committed(messages[19])
	w.AwaitAccepted()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.AwaitExit(t, 0)
	if marked := w.Count(`select count(*) from outbox.dispatched`); marked != 20 {
		t.Errorf("%d messages are marked after the stop, want 20", marked)
	}
	if confirmed := w.Confirmed(); confirmed <= before {
		t.Errorf("the slot is at %d, which is not behind the last commit, after %d", confirmed, before)
	}
	next := process(t, w, nil)
	w.Insert(scenario.Message{Key: "after"})
	w.AwaitAccepted()
	for _, m := range messages {
		if got := w.Requests(m.Key); got != 1 {
			t.Errorf("%d requests for %s, want 1", got, m.Key)
		}
	}
	_ = next
}

// OPS-07: a second signal ends the process at once.
func TestOPS07_SecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	w.Fault(emulator.Fault{Route: "queue.publish", Hang: true})
	w.Insert(scenario.Message{Key: "hangs"})
	p := process(t, w, nil)
	w.AwaitRequest("hangs")
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.AwaitLog(t, "draining")
	pgtest.Eventually(t, scenario.Patience, func() error {
		if err := p.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		select {
		case <-p.Done():
			return nil
		default:
			return fmt.Errorf("still running")
		}
	})
	p.AwaitExit(t, -1)
}

// Killed after the marks and before the server heard of the new position: the
// slot shows the messages again, and the replay guard finds their marks.
func TestCrash_BetweenMarkAndStandbyStatus(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	direct := w.Env["DATABASE_URL"]
	proxy := w.Proxy()
	w.Env["RELAY_REPLICATION_URL"], w.Env["DATABASE_URL"] = w.Env["DATABASE_URL"], direct
	slow := w.Fault(emulator.Fault{Route: "queue.publish", Store: true, Delay: 500 * time.Millisecond})
	p := process(t, w, nil)
	messages := scenario.Batch("m", 21, "a", "b", "")
	w.Commit(w.Conn, messages...)
	w.AwaitRequest("m-20") // it waits for no other, and is the last to come through the proxy
	proxy.Freeze()         // from here on no status gets through
	w.Queue.RemoveFault(slow)
	w.AwaitAccepted()
	w.AwaitMarked()
	kill(t, p)
	proxy.Thaw()
	process(t, w, nil)
	w.Insert(scenario.Message{Key: "after"})
	w.Settle()
	for _, m := range messages {
		if got := w.Requests(m.Key); got != 1 {
			t.Errorf("%d requests for %s, want 1", got, m.Key)
		}
	}
}
