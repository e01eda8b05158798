package scenario

import (
	"context"
	"fmt"
	"slices"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// Settle waits until every committed message is accepted and marked, and then
// makes all checks.
func (w *World) Settle() {
	w.t.Helper()
	w.AwaitAccepted()
	w.AwaitMarked()
	w.AwaitSlot()
	w.NoPhantom()
	w.Order()
	w.Same()
}

// AwaitAccepted waits until the queue has accepted every committed key.
func (w *World) AwaitAccepted() {
	w.t.Helper()
	pgtest.Eventually(w.t, Patience, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.follow()
		missing, example := 0, ""
		for _, m := range w.committed {
			if !w.taken[m.Key] {
				missing, example = missing+1, m.Key
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d of %d committed keys are not accepted, such as %s", missing, len(w.committed), example)
		}
		return nil
	})
}

// follow reads what is new in the journal. The caller has the lock.
func (w *World) follow() {
	for _, e := range w.Queue.Journal().Entries(w.followed, 0) {
		w.followed = e.Number
		if e.Route != "queue.publish" {
			continue
		}
		w.requests[e.Key]++
		if e.Outcome == emulator.Accepted {
			w.taken[e.Key] = true
		}
	}
}

// accepted are the accepted keys with the place of their first acceptance.
func (w *World) accepted() map[string]uint64 {
	first := map[string]uint64{}
	for _, m := range w.Queue.Accepted("") {
		if first[m.Key] == 0 {
			first[m.Key] = m.Sequence
		}
	}
	return first
}

// AwaitMarked waits until every committed message is in dispatched.
func (w *World) AwaitMarked() {
	w.t.Helper()
	keys := make([]string, 0, len(w.Keys()))
	for _, m := range w.Keys() {
		keys = append(keys, m.Key)
	}
	pgtest.Eventually(w.t, Patience, func() error {
		var unmarked int
		err := w.Conn.QueryRow(context.Background(), `
			select count(*) from outbox.messages m
			where key = any ($1) and not exists (select from outbox.dispatched d where d.message_id = m.id)`, keys).Scan(&unmarked)
		if err == nil && unmarked > 0 {
			err = fmt.Errorf("%d accepted messages are not marked", unmarked)
		}
		return err
	})
}

// slotDistance is how far a slot that is up to date may be behind.
const slotDistance = 1 << 20

// AwaitSlot waits until the confirmed flush is close to the end of the WAL.
func (w *World) AwaitSlot() {
	w.t.Helper()
	pgtest.Eventually(w.t, Patience, func() error {
		behind, err := w.behind()
		if err == nil && behind > slotDistance {
			err = fmt.Errorf("the slot is %d bytes behind", behind)
		}
		return err
	})
}

// behind is how many bytes of WAL the slot has not confirmed.
func (w *World) behind() (bytes int64, err error) {
	err = w.Conn.QueryRow(context.Background(), `
		select (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint from pg_replication_slots where slot_name = $1`,
		w.Env["RELAY_SLOT"]).Scan(&bytes)
	return bytes, err
}

// Confirmed is the confirmed flush of the slot, as a number.
func (w *World) Confirmed() (lsn int64) {
	w.t.Helper()
	return w.Count(`select (confirmed_flush_lsn - '0/0')::bigint from pg_replication_slots where slot_name = $1`, w.Env["RELAY_SLOT"])
}

// WAL is the end of the WAL, as a number.
func (w *World) WAL() (lsn int64) {
	w.t.Helper()
	return w.Count(`select (pg_current_wal_lsn() - '0/0')::bigint`)
}

// NoPhantom checks that no key was sent that did not commit.
func (w *World) NoPhantom() {
	w.t.Helper()
	known := map[string]bool{}
	for _, m := range w.Keys() {
		known[m.Key] = true
	}
	for _, e := range w.Published() {
		if !known[e.Key] && !w.aborted[e.Key] {
			w.t.Errorf("phantom: key %q was sent and never committed", e.Key)
		}
	}
}

// Order checks that the first acceptances of each ordering key are in commit
// order.
func (w *World) Order() {
	w.t.Helper()
	first := w.accepted()
	last := map[[2]string]Message{}
	for _, m := range w.Keys() {
		if m.OrderingKey == "" {
			continue
		}
		lane := [2]string{m.Queue, m.OrderingKey}
		if before, ok := last[lane]; ok && first[m.Key] < first[before.Key] {
			w.t.Errorf("ordering key %q: %q was accepted before %q", m.OrderingKey, m.Key, before.Key)
		}
		last[lane] = m
	}
}

// Same checks that all requests of a key carry the same key and bytes.
func (w *World) Same() {
	w.t.Helper()
	bodies := map[string]string{}
	for _, e := range w.Published() {
		if before, ok := bodies[e.Key]; ok && before != e.BodySHA256 {
			w.t.Errorf("key %q was sent with different bytes", e.Key)
		}
		bodies[e.Key] = e.BodySHA256
		if header := e.Header.Get("Idempotency-Key"); e.Header != nil && header != e.Key {
			w.t.Errorf("key %q was sent with the header %q", e.Key, header)
		}
	}
}

// Published are the publish requests in the journal, oldest first.
func (w *World) Published() []emulator.Entry {
	return slices.DeleteFunc(w.Queue.Journal().Entries(0, 0), func(e emulator.Entry) bool {
		return e.Route != "queue.publish"
	})
}

// Requests counts the publish requests for a key.
func (w *World) Requests(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.follow()
	return w.requests[key]
}

// AwaitRequest waits for a publish request for a key.
func (w *World) AwaitRequest(key string) {
	w.t.Helper()
	pgtest.Eventually(w.t, Patience, func() error {
		if w.Requests(key) == 0 {
			return fmt.Errorf("no request for %s", key)
		}
		return nil
	})
}

// Fault scripts a misbehaviour of the queue and returns its number.
func (w *World) Fault(f emulator.Fault) uint64 {
	w.t.Helper()
	id, err := w.Queue.AddFault(f)
	if err != nil {
		w.t.Fatalf("fault: %v", err)
	}
	return id
}
