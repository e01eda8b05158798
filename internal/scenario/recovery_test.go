package scenario_test

import (
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// What the WAL does not show is found in the table: promise 4.

// afterWork starts a relay, lets it work, and stops it: there is a slot then.
func afterWork(t *testing.T, w *scenario.World) {
	t.Helper()
	r := w.Start()
	r.AwaitLog("session began")
	w.Insert(scenario.Message{Key: "first", OrderingKey: "a"})
	w.AwaitAccepted()
	w.AwaitMarked()
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
}

// OUT-04: the slot is gone, as after a failover to a server that does not have
// it. A new one is made, and what was committed in between is delivered.
func TestPromise4_SlotDropped(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	afterWork(t, w)
	w.Insert(scenario.Batch("before", 200, "a", "b", "c")...)
	w.Exec(`select pg_drop_replication_slot($1)`, w.Env["RELAY_SLOT"])
	w.Insert(scenario.Batch("between", 200, "a", "b", "c")...)
	r := w.Start()
	w.Insert(scenario.Batch("after", 200, "a", "b", "c")...)
	w.Settle()
	if r.Logs().FilterMessage("slot created").Len() != 1 {
		t.Error("no loud line about the new slot")
	}
}

// CDC-13: somebody moved the slot over messages that nobody has delivered.
func TestPromise4_SlotAdvancedBySomebody(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_SWEEP_INTERVAL": "200ms"})
	afterWork(t, w)
	w.Insert(scenario.Batch("skipped", 100, "a", "b")...)
	w.Exec(`select pg_replication_slot_advance($1, pg_current_wal_insert_lsn())`, w.Env["RELAY_SLOT"])
	r := w.Start()
	w.AwaitAccepted()
	w.AwaitMarked()
	w.NoPhantom()
	w.Same()
	r.AwaitLog("messages recovered that the stream did not show")
}

// SCH-05, variant 4: the table leaves the publication for a while. What was
// committed meanwhile is delivered.
func TestPromise4_TableLeftThePublication(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_SWEEP_INTERVAL": "200ms", "RELAY_CHECK_INTERVAL": "100ms"})
	r := w.Start()
	r.AwaitLog("session began")
	w.Exec(`alter publication outbox_relay drop table outbox.messages`)
	hidden := scenario.Batch("hidden", 5, "a")
	w.Insert(hidden...)
	r.AwaitLog("messages may not come")
	w.AwaitAccepted()
	w.Exec(`alter publication outbox_relay add table outbox.messages`)
	w.Insert(scenario.Batch("shown", 5, "a")...)
	w.Settle()
	r.AwaitLog("messages recovered that the stream did not show")
}

// OUT-05: the server threw away WAL that the slot needed. The relay makes a new
// slot and delivers everything.
func TestPromise4_SlotInvalidated(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{
		"max_slot_wal_keep_size": "16MB", "max_wal_size": "48MB", "min_wal_size": "32MB", "wal_keep_size": "0",
	}})
	w := scenario.On(t, cluster.Migrated(t))
	afterWork(t, w)
	w.Insert(scenario.Batch("lost", 50, "a", "b")...)
	invalidate(t, w)
	r := w.Start()
	w.Insert(scenario.Batch("after", 50, "a", "b")...)
	w.Settle()
	if r.Logs().FilterMessage("slot lost, a new one takes its place").Len() != 1 {
		t.Error("no loud line about the lost slot")
	}
}

// OPS-13: thousands of messages from before the first start, and writers during
// it: all of them arrive, the old ones of an ordering key before the new.
func TestOPS13_MessagesFromBeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	old := scenario.Batch("old", 4000, "a", "b", "c", "d", "")
	for i := 0; i < len(old); i += 500 {
		w.Commit(w.Conn, old[i:i+500]...)
	}
	p := process(t, w, nil)
	kill(t, p)
	process(t, w, nil)
	w.Insert(scenario.Batch("new", 100, "a", "b", "c", "d")...)
	w.Settle()
	noneLeft(w, t)
}
