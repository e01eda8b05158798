package scenario_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// ORD-01: the lower id commits later. Order is the order of commits, and
// nothing is skipped, also while the table is swept all the time.
func TestORD01_SequenceOrderIsNotCommitOrder(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_SWEEP_INTERVAL": "100ms"})
	r := w.Start()
	r.AwaitLog("session began") // before there is a slot, nobody sees the order of commits
	ctx := context.Background()
	late := w.Connect()
	for round := range 60 {
		lower := scenario.Message{Key: fmt.Sprintf("lower-%d", round), OrderingKey: "a"}
		higher := scenario.Message{Key: fmt.Sprintf("higher-%d", round), OrderingKey: "a"}
		tx, err := late.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := scenario.Write(ctx, tx, lower); err != nil {
			t.Fatal(err)
		}
		w.Insert(higher)
		if round%20 == 10 {
			if err := r.Stop(); err != nil {
				t.Fatal(err)
			}
			r = w.Start()
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		w.Committed(lower)
	}
	w.Settle()
}

// ORD-02: a retry never lets the next message of its lane overtake, and no
// other lane waits for it.
func TestORD02_RetryDoesNotLetTheNextOvertake(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_RETRY_MIN": "20ms", "RELAY_RETRY_MAX": "200ms", "RELAY_PROBE_MIN": "20ms"})
	w.Fault(emulator.Fault{Key: "A-0", Status: 503, Count: 5})
	w.Fault(emulator.Fault{Key: "A-0", Status: 429, RetryAfter: "1", Count: 1})
	w.Fault(emulator.Fault{Key: "A-0", Cut: emulator.CutReset, Count: 1})
	for i := range 20 {
		w.Insert(scenario.Message{Key: fmt.Sprintf("A-%d", i), OrderingKey: "A"},
			scenario.Message{Key: fmt.Sprintf("B-%d", i), OrderingKey: "B"})
	}
	w.Start()
	w.Settle()
	if got := w.Requests("A-0"); got != 8 {
		t.Errorf("%d requests for the first message, want 8", got)
	}
	accepted := false
	for _, e := range w.Published() {
		accepted = accepted || e.Key == "A-0" && e.Outcome == emulator.Accepted
		if e.Key == "A-1" && !accepted {
			t.Fatal("the second message was sent before the first was accepted")
		}
	}
}

// ORD-03: order inside a transaction is the order of its statements, whatever
// statements these are.
func TestORD03_OrderInsideOneTransaction(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	ctx := context.Background()
	w.Exec(`create table shop (n int)`)
	w.Exec(`create function note() returns trigger language plpgsql as $$ begin
		insert into outbox.messages (key, queue, ordering_key, payload) values ('trigger-' || new.n, 'orders', 'a', '{}');
		return new; end $$`)
	w.Exec(`create trigger note after insert on shop for each row execute function note()`)
	tx, err := w.Conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var want []scenario.Message
	expect := func(key string) { want = append(want, scenario.Message{Key: key, OrderingKey: "a"}) }
	exec := func(sql string) {
		t.Helper()
		if _, err := tx.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	const insert = `insert into outbox.messages (key, queue, ordering_key, payload) `
	for i := range 5 {
		exec(fmt.Sprintf(insert+`values ('single-%d', 'orders', 'a', '{}')`, i))
		expect(fmt.Sprintf("single-%d", i))
	}
	exec(insert + `select 'series-' || i, 'orders', 'a', '{}' from generate_series(0, 19) i order by i`)
	for i := range 20 {
		expect(fmt.Sprintf("series-%d", i))
	}
	exec(`with x as (` + insert + `values ('cte-0', 'orders', 'a', '{}') returning 1) ` + insert + `select 'cte-1', 'orders', 'a', '{}' from x`)
	expect("cte-0")
	expect("cte-1")
	exec(`savepoint s`)
	exec(insert + `values ('savepoint', 'orders', 'a', '{}')`)
	exec(`release s`)
	expect("savepoint")
	var copied strings.Builder
	for i := range 20 {
		fmt.Fprintf(&copied, "copy-%d\torders\ta\t{}\n", i)
		expect(fmt.Sprintf("copy-%d", i))
	}
	if _, err := w.Conn.PgConn().CopyFrom(ctx, strings.NewReader(copied.String()), `copy outbox.messages (key, queue, ordering_key, payload) from stdin`); err != nil {
		t.Fatal(err)
	}
	exec(`insert into shop values (0), (1)`)
	expect("trigger-0")
	expect("trigger-1")
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	w.Committed(want...)
	w.Start()
	w.Settle()
	for i, got := range w.Queue.Accepted("") {
		if got.Key != want[i].Key {
			t.Fatalf("message %d is %s, want %s", i, got.Key, want[i].Key)
		}
	}
}

// ORD-05: a message's created_at says nothing about order.
func TestORD05_BackDatedMessages(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	r := w.Start()
	r.AwaitLog("session began")
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	for i, createdAt := range []string{"2030-01-01", "now", "1999-01-01", "infinity", "0044-03-15 BC", "20000-01-01"} {
		m := scenario.Message{Key: fmt.Sprintf("A-%d", i), OrderingKey: "A"}
		w.Exec(`insert into outbox.messages (key, queue, ordering_key, payload, created_at) values ($1, 'orders', 'A', '{}', $2::text::timestamptz)`, m.Key, createdAt)
		w.Committed(m)
	}
	w.Start()
	w.Settle()
}

// ORD-06: messages without ordering key are no lane: one that hangs stops no
// other. The empty text is refused at insert, so it cannot be taken for a key.
func TestORD06_NoOrderingKeyRunsFreely(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	if _, err := w.Conn.Exec(context.Background(), `insert into outbox.messages (key, queue, ordering_key, payload) values ('x', 'orders', '', '{}')`); err == nil {
		t.Error("an empty ordering key was taken")
	}
	hang := w.Fault(emulator.Fault{Key: "free-7", Hang: true})
	w.Insert(scenario.Batch("free", 100)...)
	r := w.Start()
	for _, m := range scenario.Batch("free", 100) {
		w.AwaitRequest(m.Key)
	}
	w.Queue.RemoveFault(hang)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	w.Start()
	w.Settle()
}

// ORD-07: independent ordering keys go out side by side. The queue answers the
// first requests only once so many are there at the same time.
func TestORD07_IndependentKeysRunSideBySide(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	const together = 32
	var arrived atomic.Int64
	all := make(chan struct{})
	w.Before(func(next http.Handler, left <-chan struct{}) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			if arrived.Add(1) == together {
				close(all)
			}
			select {
			case <-all:
			case <-left:
			}
			next.ServeHTTP(rw, req)
		})
	})
	keys := make([]string, 200)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%d", i)
	}
	messages := scenario.Batch("m", 2000, keys...)
	for i := 0; i < len(messages); i += 100 {
		w.Commit(w.Conn, messages[i:i+100]...)
	}
	w.Start()
	w.Settle()
	connections := map[string]bool{}
	for _, e := range w.Published() {
		connections[e.Connection] = true
	}
	if len(connections) > 256 {
		t.Errorf("%d connections for 256 requests in flight", len(connections))
	}
}

// A message of the past is not held, one of the future is: deliver_at.
func TestDeliverAt_HoldsUntilDue(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	r := w.Start()
	r.AwaitLog("session began")
	w.Exec(`insert into outbox.messages (key, queue, payload, deliver_at) values ('due', 'orders', '{}', now() - interval '1 hour')`)
	w.Exec(`insert into outbox.messages (key, queue, payload, deliver_at) values ('later', 'orders', '{}', now() + interval '1500 ms')`)
	w.AwaitRequest("due")
	w.AwaitRequest("later")
	notBeforeItIsDue(t, w, "later")
}

// notBeforeItIsDue checks when a message was sent.
func notBeforeItIsDue(t *testing.T, w *scenario.World, key string) {
	t.Helper()
	var due time.Time
	if err := w.Conn.QueryRow(t.Context(), `select deliver_at from outbox.messages where key = $1`, key).Scan(&due); err != nil {
		t.Fatal(err)
	}
	for _, at := range arrivals(w, key) {
		if at.Before(due) {
			t.Errorf("%s was sent %s before it was due", key, due.Sub(at))
		}
	}
}
