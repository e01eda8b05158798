package scenario_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// seeded returns a source of randomness whose seed a failure prints.
func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// APP-01: whatever way a transaction takes, a message exists exactly when it
// committed.
func TestPromise1_ExistsExactlyWhenCommitted(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	w.Start()
	manyTransactions(t, w)
	w.Settle()
}

// manyTransactions makes transactions of every kind, from many connections at
// once.
func manyTransactions(t *testing.T, w *scenario.World) {
	t.Helper()
	const writers, rounds = 10, 60
	seeds := seeded(t)
	var group sync.WaitGroup
	for writer := range writers {
		random := rand.New(rand.NewPCG(seeds.Uint64(), 0))
		conn := w.Connect()
		group.Go(func() {
			for round := range rounds {
				oneTransaction(t, w, conn, random, fmt.Sprintf("w%d-%d", writer, round))
			}
		})
	}
	group.Wait()
}

// oneTransaction writes a few messages and ends the transaction in some way.
func oneTransaction(t *testing.T, w *scenario.World, conn *pgx.Conn, random *rand.Rand, prefix string) {
	ctx := context.Background()
	message := func(n string) scenario.Message {
		return scenario.Message{Key: prefix + n, OrderingKey: fmt.Sprintf("k%d", random.IntN(5)) + prefix[:2]}
	}
	must := func(err error) {
		if err != nil {
			t.Errorf("transaction %s: %v", prefix, err)
		}
	}
	kept, lost := message("-kept"), message("-lost")
	tx, err := conn.Begin(ctx)
	must(err)
	must(scenario.Write(ctx, tx, kept))
	switch random.IntN(6) {
	case 0: // rolled back
		must(tx.Rollback(ctx))
		return
	case 1: // a savepoint that is rolled back
		inner, err := tx.Begin(ctx)
		must(err)
		must(scenario.Write(ctx, inner, lost))
		must(inner.Rollback(ctx))
	case 2: // a savepoint that is released
		inner, err := tx.Begin(ctx)
		must(err)
		also := message("-also")
		also.OrderingKey = kept.OrderingKey
		must(scenario.Write(ctx, inner, also))
		must(inner.Commit(ctx))
		must(tx.Commit(ctx))
		w.Committed(kept, also)
		return
	case 3: // an exception block that catches
		_, err := tx.Exec(ctx, fmt.Sprintf(`do $$ begin
			insert into outbox.messages (key, queue, payload) values ('%s', 'orders', '{}');
			raise exception 'no';
		exception when others then null; end $$`, lost.Key))
		must(err)
	case 4: // an error in the transaction: COMMIT rolls back
		_, err := tx.Exec(ctx, `select 1/0`)
		if err == nil {
			t.Error("no error from a division by zero")
		}
		if err := tx.Commit(ctx); err == nil {
			t.Error("commit of a failed transaction went through")
		}
		return
	}
	must(tx.Commit(ctx))
	w.Committed(kept)
}

// HTTP-03: the queue stores a message and its answer is lost: the same key and
// the same bytes come again, also after restarts of the relay.
func TestPromise2_SameKeyAndBytesOnEveryAttempt(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{
		"RELAY_RETRY_MIN": "10ms", "RELAY_RETRY_MAX": "100ms", "RELAY_PROBE_MIN": "20ms", "RELAY_PROBE_MAX": "100ms",
		"INFRAI_REQUEST_TIMEOUT": "300ms",
	})
	for i, cut := range []emulator.Cut{emulator.CutReset, emulator.CutClose, emulator.CutHalf} {
		w.Fault(emulator.Fault{Route: "queue.publish", Probability: 0.1, Seed: uint64(i + 1), Store: true, Cut: cut})
	}
	w.Fault(emulator.Fault{Route: "queue.publish", Every: 40, Store: true, Delay: 500 * time.Millisecond})
	messages := scenario.Batch("m", 400, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
	w.Insert(messages[:200]...)
	for _, rest := range [][]scenario.Message{messages[200:300], messages[300:]} {
		r := w.Start()
		w.AwaitRequest(rest[0].Key[:2] + "100")
		w.Insert(rest...)
		if err := r.Stop(); err != nil {
			t.Fatalf("stop: %v", err)
		}
	}
	w.Start()
	w.Settle()
	repeated := 0
	for _, m := range messages {
		if w.Requests(m.Key) > 1 {
			repeated++
		}
	}
	if repeated == 0 {
		t.Error("no key was sent twice: the test shows nothing")
	}
}

// CDC-01, CDC-06, CDC-07: while a message has no outcome the confirmed flush
// stays behind it, whatever is finished after it and whatever else is written.
func TestPromise3_ConfirmedFlushStaysBehind(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{
		"RELAY_STATUS_INTERVAL": "100ms", "RELAY_SILENCE_TIMEOUT": "10s",
		"INFRAI_REQUEST_TIMEOUT": "10m", "RELAY_DEFER_AFTER": "10m", "RELAY_DRAIN_TIMEOUT": "1s", // it stays without outcome
	})
	hang := w.Fault(emulator.Fault{Key: "hangs-0", Hang: true})
	w.Exec(`create table noise (filler text)`)
	r := w.Start()
	r.AwaitLog("session began")
	w.Insert(scenario.Message{Key: "hangs-0", OrderingKey: "h"})
	committed := w.WAL()
	w.AwaitRequest("hangs-0")
	later := scenario.Batch("later", 300, "b", "c", "d")
	for i, m := range later {
		w.Insert(m)
		w.Exec(`insert into noise select repeat('x', 1000)`)
		if confirmed := w.Confirmed(); confirmed >= committed {
			t.Fatalf("after %d transactions the confirmed flush %d has passed the open message at %d", i, confirmed, committed)
		}
	}
	for _, m := range later {
		w.AwaitRequest(m.Key)
	}
	if confirmed := w.Confirmed(); confirmed >= committed {
		t.Fatalf("the confirmed flush %d has passed the open message at %d", confirmed, committed)
	}
	w.Queue.RemoveFault(hang)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	w.Start()
	w.Settle()
}

// ORD-01, ORD-02, APP-06 in small: writers, a queue that fails in every way,
// restarts of the relay and cut connections; order per ordering key holds.
func TestPromise6_OrderThroughFaultsAndRestarts(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{
		"RELAY_RETRY_MIN": "10ms", "RELAY_RETRY_MAX": "200ms", "RELAY_PROBE_MIN": "20ms", "RELAY_PROBE_MAX": "200ms",
		"INFRAI_REQUEST_TIMEOUT": "500ms", "RELAY_RETRY": "50ms",
	})
	delete(w.Env, "RELAY_RETRY")
	random := seeded(t)
	w.Fault(emulator.Fault{Route: "queue.publish", Probability: 0.05, Seed: random.Uint64(), Status: 500})
	w.Fault(emulator.Fault{Route: "queue.publish", Probability: 0.05, Seed: random.Uint64(), Store: true, Cut: emulator.CutReset})
	w.Fault(emulator.Fault{Route: "queue.publish", Probability: 0.02, Seed: random.Uint64(), Status: 429, RetryAfter: "0.05"})
	w.Fault(emulator.Fault{Route: "queue.publish", Probability: 0.02, Seed: random.Uint64(), Store: true, Delay: 50 * time.Millisecond})

	const writers, rounds = 8, 100
	var group sync.WaitGroup
	for writer := range writers {
		random := rand.New(rand.NewPCG(random.Uint64(), 0))
		conn := w.Connect()
		group.Go(func() {
			for round := range rounds {
				batch := scenario.Batch(fmt.Sprintf("w%d-%d", writer, round), 1+random.IntN(4), fmt.Sprintf("w%d-a", writer), fmt.Sprintf("w%d-b", writer))
				w.Commit(conn, batch...)
			}
		})
	}
	written := make(chan struct{})
	go func() { group.Wait(); close(written) }()
	r := w.Start()
	for round := 0; ; round++ {
		select {
		case <-written:
			w.Settle()
			return
		case <-r.Ended():
			t.Fatalf("relay ended: %v", r.Err())
		default:
		}
		w.AwaitRequest(fmt.Sprintf("w0-%d-0", min(round*20, rounds-1)))
		if round%2 == 0 {
			if err := r.Stop(); err != nil {
				t.Fatal(err)
			}
			r = w.Start()
			continue
		}
		w.Exec(`select pg_terminate_backend(pid) from pg_stat_replication where application_name like '%outbox-relay%'
			and pid in (select active_pid from pg_replication_slots where slot_name = $1)`, w.Env["RELAY_SLOT"])
	}
}

// CDC-02, CDC-14: a quiet outbox next to a busy database holds no WAL, and the
// relay writes nothing to achieve that.
func TestQuietOutboxHoldsNoWAL(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	r := w.Start()
	r.AwaitLog("session began")
	w.Insert(scenario.Message{Key: "one"})
	w.AwaitAccepted()
	w.AwaitMarked()
	w.Exec(`create table noise (filler text)`)
	updated := w.Count(`select (extract(epoch from updated_at) * 1000000)::bigint from outbox.relays where slot = $1`, w.Env["RELAY_SLOT"])
	for range 20 {
		w.Exec(`insert into noise select repeat(md5(i::text), 300) from generate_series(1, 200) i`)
	}
	w.AwaitSlot()
	if now := w.Count(`select (extract(epoch from updated_at) * 1000000)::bigint from outbox.relays where slot = $1`, w.Env["RELAY_SLOT"]); now != updated {
		t.Error("the relay wrote to its row while nothing of its own happened")
	}
	pgtest.Eventually(t, scenario.Patience, func() error { return r.Alive() })
}
