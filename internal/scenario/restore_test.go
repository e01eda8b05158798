package scenario_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// copied is a server whose data folder is put away and put back.
type copied struct {
	*pgtest.Cluster
	t   *testing.T
	dir string
}

// newCopied starts a server in a folder that its user gets into.
func newCopied(t *testing.T) *copied {
	t.Helper()
	dir, err := os.MkdirTemp("", "outbox-postgres-copied-") //nolint:usetesting // its folders are closed to other users
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &copied{Cluster: pgtest.New(t, pgtest.Options{Dir: filepath.Join(dir, "cluster")}), t: t, dir: dir}
}

func (c *copied) data() string { return filepath.Join(c.dir, "cluster", "data") }

// copyFolder copies a folder with its owners, in place of another.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v: %s", from, err, out)
	}
}

// stopped runs do while the server is stopped.
func (c *copied) stopped(do func()) {
	c.t.Helper()
	if err := c.Stop("fast"); err != nil {
		c.t.Fatal(err)
	}
	do()
	if err := c.Start(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// backUp puts a copy of the data folder away.
func (c *copied) backUp() {
	c.stopped(func() { copyFolder(c.t, c.data(), filepath.Join(c.dir, "backup")) })
}

// restore goes back to the copy. Many kinds of backup have no slots.
func (c *copied) restore(slots bool) {
	c.stopped(func() {
		copyFolder(c.t, filepath.Join(c.dir, "backup"), c.data())
		if !slots {
			found, err := filepath.Glob(filepath.Join(c.data(), "pg_replslot", "*"))
			for _, slot := range found {
				err = os.RemoveAll(slot)
			}
			if err != nil || len(found) == 0 {
				c.t.Fatalf("remove the slots %q: %v", found, err)
			}
		}
	})
}

// An older backup is put back, in several ways, one after another. What waited in
// it goes out; what was sent after it and is not in the tables any more stays sent;
// the numbers of these are given out again. Nothing is lost, and nothing hangs.
func TestRestore_OlderBackup(t *testing.T) {
	t.Parallel()
	cluster := newCopied(t)
	w := brisk(watchful(scenario.On(t, cluster.Migrated(t)))).With(map[string]string{
		"RELAY_SHUTDOWN_PAUSE": "300ms", "RELAY_BREAKER_FAILURES": "100000", // those that wait say nothing of the others
	})
	t.Run("with its slots", func(t *testing.T) {
		r := restoreUnderTheRelay(t, w, cluster, true)
		loud(t, r, zapcore.ErrorLevel, "server has gone back in time", "older backup")
		aliveAfterRestore(t, w, r, "with")
	})
	t.Run("without slots", func(t *testing.T) {
		r := restoreUnderTheRelay(t, w, cluster, false)
		loud(t, r, zapcore.ErrorLevel, "slot lost, a new one takes its place", "is gone")
		aliveAfterRestore(t, w, r, "without")
	})
	t.Run("while no relay runs", func(t *testing.T) { // nothing tells the next one
		gone := restoreWhileNoRelayRuns(t, w, cluster)
		r := w.Start()
		for _, m := range gone {
			w.Forget(m.Key)
		}
		aliveAfterRestore(t, w, r, "nobody")
	})
	t.Run("with answers in hand", func(t *testing.T) { restoreWithAnswersInHand(t, w, cluster) })
}

// restoreUnderTheRelay goes back to a backup in which messages wait, after others
// were sent.
func restoreUnderTheRelay(t *testing.T, w *scenario.World, cluster *copied, slots bool) *scenario.Relay {
	t.Helper()
	name := fmt.Sprintf("slots-%v", slots)
	r := w.Start()
	r.AwaitLog("session began")
	waiting := w.Fault(emulator.Fault{Route: "queue.publish", KeyPrefix: "waiting", Status: 503})
	w.Insert(scenario.Batch("waiting-"+name, 20, "c", "d", "")...)
	awaitDeferred(w, t, 20, "true")
	cluster.backUp()
	w.Reconnect()

	gone := scenario.Batch("gone-"+name, 40, "a", "b", "")
	w.Insert(gone...)
	w.AwaitRequest("gone-" + name + "-39")
	w.Queue.RemoveFault(waiting) // some go out before the restore, and again after it
	w.AwaitRequest("waiting-" + name + "-0")
	cluster.restore(slots)
	w.Reconnect()
	for _, m := range gone {
		w.Forget(m.Key)
	}
	return r
}

// aliveAfterRestore writes messages, which get the numbers of those that are
// gone, and stops the relay when all is done.
func aliveAfterRestore(t *testing.T, w *scenario.World, r *scenario.Relay, name string) {
	t.Helper()
	w.Insert(scenario.Batch("new-"+name, 40, "a", "b", "")...)
	settleApart(w)
	noneLeft(w, t)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
}

func restoreWhileNoRelayRuns(t *testing.T, w *scenario.World, cluster *copied) (gone []scenario.Message) {
	t.Helper()
	w.Insert(scenario.Batch("unread", 10, "a", "")...)
	cluster.backUp()
	w.Reconnect()
	r := w.Start()
	gone = scenario.Batch("gone-too", 10, "a", "")
	w.Insert(gone...)
	w.AwaitAccepted()
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	cluster.restore(true)
	w.Reconnect()
	return gone
}

// What a relay remembers of a message that it could not mark is not taken for
// another message that has the same number after a restore.
func restoreWithAnswersInHand(t *testing.T, w *scenario.World, cluster *copied) {
	t.Helper()
	w.With(map[string]string{"RELAY_OUTCOME_LINGER": "10m", "RELAY_OUTCOME_BATCH": "100000"})
	cluster.backUp()
	w.Reconnect()
	r := w.Start()
	r.AwaitLog("session began")
	w.Insert(scenario.Message{Key: "gone-at-last"})
	w.AwaitAccepted()
	number := w.Count(`select id from outbox.messages where key = 'gone-at-last'`)
	if err := cluster.Stop("immediate"); err != nil {
		t.Fatal(err)
	}
	copyFolder(t, filepath.Join(cluster.dir, "backup"), cluster.data())
	if err := cluster.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Reconnect()
	w.Forget("gone-at-last")
	w.Insert(scenario.Message{Key: "new-at-last"})
	if again := w.Count(`select id from outbox.messages where key = 'new-at-last'`); again != number {
		t.Fatalf("the number is %d, want %d again", again, number)
	}
	w.AwaitAccepted()
	w.NoPhantom()
}

// quiet keeps a copy from sending what it inherited; docs/operations.md has it.
const quiet = `insert into outbox.dispatched (message_id, attempts)
select id, 0 from outbox.messages on conflict do nothing;
delete from outbox.deferred;
`

// A copy of the whole server looks like the server. With the same settings its
// relay sends too: what waited at the time of the copy, with the same keys, and
// what is written into the copy.
func TestRestore_CloneOfTheServer(t *testing.T) {
	t.Parallel()
	original := pgtest.New(t)
	w := watchful(scenario.On(t, original.Migrated(t)))
	afterWork(t, w)
	w.Insert(scenario.Batch("both", 20, "a", "b", "")...)
	copies := map[string]*pgtest.Cluster{"as it is": pgtest.NewClone(t, original), "quieted": pgtest.NewClone(t, original)}
	w.Reconnect()
	r := w.Start()
	w.Settle()
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	for name, clone := range copies {
		t.Run(name, func(t *testing.T) {
			before := len(w.Published())
			other := watchful(scenario.On(t, clone.URL(w.Conn.Config().Database)))
			other.Env["INFRAI_BASE_URL"], other.Env["RELAY_SLOT"] = w.QueueURL, w.Env["RELAY_SLOT"]
			again := 20
			if name == "quieted" {
				script(t, other, quiet)
				again = 0
			}
			other.Start()
			written := scenario.Batch("copy "+name, 20, "a", "b", "")
			for i := range written {
				written[i].Key = strings.ReplaceAll(written[i].Key, " ", "-")
				w.Forget(written[i].Key) // not committed in the original, and sent
			}
			other.Insert(written...)
			other.AwaitMarked()
			other.AwaitSlot()
			pgtest.Eventually(t, scenario.Patience, func() error { // some of the original may still be under way
				if got := len(w.Published()) - before; got != again+len(written) {
					return fmt.Errorf("the copy sent %d messages, want %d of the original and its own %d", got, again, len(written))
				}
				return nil
			})
		})
	}
	w.Start()
	w.Insert(scenario.Batch("original", 20, "a", "b", "")...)
	w.Settle()
}
