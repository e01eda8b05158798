package poll_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/outbox"
)

func TestSource_Next_WholeRows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`insert into outbox.messages (key, queue, ordering_key, payload, headers, delay_seconds, priority, deliver_at)
		values ('k', 'orders', 'o', '{"n": 1.10, "big": 12345678901234567890123}', '{"traceparent": "x"}', 7, 3, '2031-01-02 03:04:05+00')`)
	r.insert(r.conn, "plain", "")
	s := r.read()
	s.await(2)
	got := s.rows[0]
	if got.ID != 1 || got.Key != "k" || got.Queue != "orders" || got.OrderingKey != "o" || got.Headers != `{"traceparent": "x"}` ||
		got.Payload != `{"n": 1.10, "big": 12345678901234567890123}` || got.DelaySeconds.Int32 != 7 || got.Priority.Int32 != 3 ||
		!got.DeliverAt.Equal(time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)) || time.Since(got.CreatedAt) > time.Hour {
		t.Errorf("got %+v", got)
	}
	if plain := s.rows[1]; plain.OrderingKey != "" || plain.Headers != "" || plain.DelaySeconds.Valid || plain.Priority.Valid || !plain.DeliverAt.IsZero() {
		t.Errorf("got %+v", plain)
	}
	if got := s.source.Position(); got != "0/0" {
		t.Errorf("position %q", got)
	}
}

// interleaved is a writer with several transactions open at once, which end in
// any order and any way.
type interleaved struct {
	*rig
	random *rand.Rand
	name   string
	phases chan struct{} // holds those between two phases: the others of the cluster want some, too
	conns  []*pgx.Conn
	open   map[*pgx.Conn][]string // keys written
	kept   []string               // keys that were committed
	count  int
}

func (w *interleaved) step() {
	conn := w.conns[w.random.IntN(len(w.conns))]
	keys, open := w.open[conn]
	if !open {
		w.execOn(conn, "begin")
		w.open[conn] = nil
		return
	}
	switch w.random.IntN(6) {
	case 0, 1, 2:
		w.count++
		key := fmt.Sprintf("%s-%d", w.name, w.count)
		w.insert(conn, key, []string{"", "a", "b", "c"}[w.random.IntN(4)])
		w.open[conn] = append(keys, key)
		return
	case 3:
		w.execOn(conn, "rollback")
	case 4:
		w.execOn(conn, "commit")
		w.kept = append(w.kept, keys...)
	case 5: // in two phases, if there is room for one
		w.phases <- struct{}{}
		defer func() { <-w.phases }()
		name := fmt.Sprintf("%s-%s-%d", conn.Config().Database, w.name, w.count)
		_, err := conn.Exec(context.Background(), "prepare transaction '"+name+"'")
		if err == nil {
			w.execOn(conn, "commit prepared '"+name+"'")
			w.kept = append(w.kept, keys...)
		}
	}
	delete(w.open, conn)
}

func (w *interleaved) end() {
	for conn, keys := range w.open {
		w.execOn(conn, "commit")
		w.kept = append(w.kept, keys...)
	}
}

// Many writers, whose transactions overlap and commit out of the order of their
// ids: exactly what was committed is handed over, once, and the messages of an
// ordering key in id order. Some get their outcome at once, some never.
func TestSource_CommittedMessagesOnceAndInIDOrder(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	seeds := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t)
	const writers, connections, steps = 8, 4, 250
	var group sync.WaitGroup
	var overtaken atomic.Bool // a message has come before one with a lower id
	all, phases := make([]*interleaved, writers), make(chan struct{}, 3)
	for i := range all {
		w := &interleaved{
			rig: r, random: rand.New(rand.NewPCG(seeds.Uint64(), 0)), name: fmt.Sprint("w", i), phases: phases, open: map[*pgx.Conn][]string{},
		}
		for range connections {
			w.conns = append(w.conns, r.connect())
		}
		all[i] = w
		group.Go(func() {
			// A reader that is slow sees too little of what goes on at once.
			for n := 0; n < steps || n < 100*steps && !overtaken.Load(); n++ {
				w.step()
			}
			w.end()
		})
	}
	written := make(chan struct{})
	go func() { group.Wait(); close(written) }()
	s := r.read()
	for done := false; !done; {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		rows, err := s.source.Next(ctx)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		s.rows = append(s.rows, rows...)
		if !overtaken.Load() && overtakes(s.rows) > 0 {
			overtaken.Store(true)
		}
		if seeds.IntN(2) == 0 {
			s.mark()
		}
		select {
		case <-written:
			done = true
		default:
		}
	}
	var want []string
	for _, w := range all {
		want = append(want, w.kept...)
	}
	got := slices.Clone(s.await(len(want)))
	s.silent()
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("committed and handed over differ (-want +got):\n%s", diff)
	}
	last := map[string]int64{}
	for i := range s.rows {
		m := &s.rows[i]
		if m.OrderingKey != "" && m.ID < last[m.OrderingKey] {
			t.Errorf("ordering key %q: id %d came after %d", m.OrderingKey, m.ID, last[m.OrderingKey])
		}
		last[m.OrderingKey] = m.ID
	}
	if overtakes(s.rows) == 0 {
		t.Error("nothing came out of id order: the test shows nothing")
	}
}

// overtakes counts the messages that came behind one with a higher id.
func overtakes(rows []outbox.Row) (n int) {
	for i := 1; i < len(rows); i++ {
		if rows[i].ID < rows[i-1].ID {
			n++
		}
	}
	return n
}

// A transaction that stays open holds back ordered messages with higher ids, and
// nothing else; the log names it.
func TestSource_LongTransaction(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.Patience = 300 * time.Millisecond
	s := r.read()
	long, other := r.connect(), r.connect()
	r.execOn(long, "begin")
	r.insert(long, "long-ordered", "a")
	r.insert(long, "long-free", "")
	for i := range 20 {
		r.insert(other, fmt.Sprint("free-", i), "")
		if i == 0 {
			s.await(1) // the long one has been seen, and is the oldest
		}
		r.insert(other, fmt.Sprint("ordered-", i), "a")
	}
	for _, key := range s.await(20) {
		if !strings.HasPrefix(key, "free-") {
			t.Errorf("%s was handed over", key)
		}
	}
	s.mark()
	line := r.awaitLog("an open transaction holds back messages with an ordering key")
	if pid := line.ContextMap()["pid"]; pid != int64(long.PgConn().PID()) {
		t.Errorf("the log names pid %v, want %d", pid, long.PgConn().PID())
	}
	r.insert(other, "free-later", "")
	s.await(21)
	s.silent()
	r.execOn(long, "commit")
	keys := s.await(43)[21:]
	if keys[0] != "long-ordered" || !slices.Contains(keys, "long-free") {
		t.Errorf("after the commit came %v", keys)
	}
	r.awaitLog("ordered messages go on")
	s.silent()
	if n := r.logs.FilterMessage(line.Message).Len(); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
}

// A transaction that was open before the session began is waited for, too, and so
// is one that is prepared.
func TestSource_OlderTransactionsAndPreparedOnes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	long := r.connect()
	r.execOn(long, "begin")
	r.insert(long, "before", "a")
	r.insert(r.conn, "after", "a")
	r.insert(r.conn, "free", "")
	s := r.read()
	s.await(1)
	s.silent()
	name := long.Config().Database
	r.execOn(long, "prepare transaction '"+name+"'")
	r.insert(r.conn, "later", "a")
	s.silent()
	r.execOn(long, "commit prepared '"+name+"'")
	if diff := cmp.Diff([]string{"free", "before", "after", "later"}, s.await(4)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What needs no order does not wait for a transaction that goes on when its own
// has ended, also if both have been open since before the session.
func TestSource_EndsWhileALongerOneGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.Patience = 100 * time.Millisecond
	long, short := r.connect(), r.connect()
	r.execOn(long, "begin")
	r.insert(long, "long", "")
	r.execOn(short, "begin")
	r.insert(short, "old", "")
	r.insert(r.conn, "early", "")
	s := r.read()
	s.await(1)
	s.silent() // it does not come back to their numbers by now
	r.execOn(short, "commit")
	s.await(2)
	r.execOn(short, "begin")
	r.insert(short, "young", "")
	s.silent() // long enough for its patience
	r.insert(r.conn, "late", "")
	s.await(3)
	r.execOn(short, "commit")
	s.await(4)
	r.execOn(long, "commit")
	if diff := cmp.Diff([]string{"early", "old", "late", "young", "long"}, s.await(5)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A queue that is one lane keeps its order without ordering keys.
func TestSource_QueueThatIsOneLane(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`insert into outbox.queues (queue, ordering) values ('orders', 'queue')`)
	s := r.read()
	long := r.connect()
	r.execOn(long, "begin")
	r.insert(long, "first", "")
	r.insert(r.conn, "second", "")
	s.silent()
	r.execOn(long, "commit")
	if diff := cmp.Diff([]string{"first", "second"}, s.await(2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What has an outcome is left out, whichever it is; what had none when a session
// ended is read by the next.
func TestSource_NextSession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 6 {
		r.insert(r.conn, fmt.Sprint("m", i+1), "a")
	}
	r.exec(`insert into outbox.dispatched (message_id, attempts) values (1, 1)`)
	r.exec(`insert into outbox.dead_letters (message_id, attempts, reason) values (3, 1, 'refused')`)
	r.exec(`insert into outbox.deferred (message_id, queue, reason) values (4, 'orders', 'transient')`)
	s := r.read()
	want := []string{"m2", "m5", "m6"}
	if diff := cmp.Diff(want, s.await(3)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.silent() // without outcome, and not handed over twice
	r.close(s.source)
	if _, err := s.source.Next(t.Context()); err == nil {
		t.Error("a closed session goes on")
	}
	r.exec(`insert into outbox.dispatched (message_id, attempts) values (2, 1)`)
	s = r.read()
	if diff := cmp.Diff(want[1:], s.await(2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Large messages come in small chunks, and none is left out.
func TestSource_LargeMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`insert into outbox.messages (key, queue, payload)
		select 'm' || i, 'orders', jsonb_build_object('x', repeat(md5(i::text), 7000)) from generate_series(1, 40) i`)
	s := r.read()
	for len(s.rows) < 40 {
		rows, err := s.source.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for i := range rows {
			size += rows[i].Size()
		}
		if size > 2<<20 {
			t.Errorf("a chunk has %d bytes", size)
		}
		s.rows = append(s.rows, rows...)
	}
	for i := range s.rows {
		if s.rows[i].ID != int64(i+1) {
			t.Fatalf("message %d came at place %d", s.rows[i].ID, i+1)
		}
	}
}

// A message that is deleted before it was read does not come, and stops nothing.
func TestSource_DeletedMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`insert into outbox.messages (key, queue, payload) select 'm' || i, 'orders', '{}' from generate_series(1, 3000) i`)
	s := r.read()
	s.await(500) // the next chunk is read ahead, the others are not
	r.exec(`delete from outbox.messages where id between 1001 and 2900`)
	s.await(1100)
	s.silent()
	if last := s.rows[len(s.rows)-1].ID; last != 3000 {
		t.Errorf("the last one is %d", last)
	}
}

// A table that somebody has locked stops the messages and not the session.
func TestSource_TableIsLocked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.read()
	other := r.connect()
	r.execOn(other, "begin")
	r.execOn(other, "lock table outbox.messages in access exclusive mode")
	r.insert(other, "m", "a")
	r.execOn(other, "savepoint a") // it goes on holding the lock
	r.insert(other, "n", "")
	r.awaitLog("table is locked by somebody, messages wait")
	r.awaitWord(s.source, time.Now())
	r.execOn(other, "commit")
	s.await(2)
}

// A table that takes the place of the old one is read from its beginning.
func TestSource_TableIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.insert(r.conn, "old", "a")
	s := r.read()
	s.await(1)
	s.mark()
	r.exec(`begin; alter table outbox.messages rename to old; create table outbox.messages (like outbox.old including all);
		insert into outbox.messages overriding system value select 1, now(), null, null, null, 'copied', 'orders', 'a', '{}', null;
		alter table outbox.messages alter column id restart with 100; commit`)
	r.insert(r.conn, "new", "a")
	r.exec(`delete from outbox.dispatched`)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	if rows, err := s.source.Next(ctx); err == nil || ctx.Err() != nil {
		t.Fatalf("got %v, %v; want the end of the session", rows, err)
	}
	s = r.read()
	if diff := cmp.Diff([]string{"copied", "new"}, s.await(2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
