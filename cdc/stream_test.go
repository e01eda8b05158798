package cdc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
)

func TestSource_DeliversCommittedMessagesInCommitOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	r.open(s)
	c := r.consume(s, nil)

	other := r.connect()
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "insert into outbox.messages (key) values ('first inserted')"); err != nil {
		t.Fatal(err)
	}
	r.insert("committed first")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.exec("begin")
	r.insert("rolled back")
	r.exec("rollback")
	r.insert("x", "y", "z")

	c.wants("committed first", "first inserted", "x", "y", "z")
	if !s.Created() {
		t.Error("the slot was made by this session, and Created says no")
	}
	wantXID := value[int64](r, "select xmin::text::bigint from outbox.messages where key = 'x'")
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := c.rows[2].XID; got != uint64(wantXID) {
		t.Errorf("transaction id %d, want %d", got, wantXID)
	}
	if got := s.Stats(); got.Messages != 5 || got.Sessions != 1 {
		t.Errorf("counted %+v, want 5 messages of 1 session", got)
	}
}

// CDC-01: keepalives do not move the slot past a message that is on its way.
func TestPromise3_KeepalivesDoNotPassAMessageInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.proxy()
	s := r.via(p)
	r.open(s)
	c := r.consume(s, everything)
	r.insert("a")
	after := r.walEnd()
	c.has("a")

	statuses := s.Stats().Statuses
	pgtest.Eventually(t, patience, func() error {
		r.noise()
		if r.confirmedPast(after) {
			t.Fatalf("the slot is at %s or behind it, with a message open", after)
		}
		if got := s.Stats().Statuses - statuses; got < 10 {
			return fmt.Errorf("%d statuses while noise was written, want 10", got)
		}
		return nil
	})
	p.Reset() // what the server sees when the relay is killed
	c.ends()

	next := r.source()
	r.open(next)
	again := r.consume(next, nil)
	again.wants("a")
	r.eventually("the slot passes the message", func() bool { return r.confirmedPast(after) })
}

// CDC-02, CDC-14, OPS-10: a quiet outbox holds no WAL, whoever else is busy.
func TestSource_FollowsTheServerWhileNothingIsOpen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	neighbour := newRig(t) // another database of the same cluster
	s := r.source()
	r.open(s)
	c := r.consume(s, nil)
	follows := func(when string) {
		t.Helper()
		r.noise()
		neighbour.noise()
		position := r.walEnd()
		r.eventually("the slot follows "+when, func() bool { return r.confirmedPast(position) })
	}
	follows("before any message")
	r.insert("a")
	c.wants("a")
	follows("after a message")
	if own := value[int64](r, "select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint from pg_stat_user_tables where schemaname = 'outbox' and relname <> 'messages'"); own != 0 {
		t.Errorf("%d rows were written to achieve it", own)
	}
}

// CDC-03: progress is reported although the server never asks for it.
func TestSource_ReportsOnItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source(func(c *cdc.Config) { c.WALSenderTimeout = time.Hour })
	r.open(s)
	c := r.consume(s, nil)
	for round := range 5 {
		r.insert(fmt.Sprint(round))
		r.noise()
		position := r.walEnd()
		c.has(fmt.Sprint(round))
		r.eventually("the slot follows", func() bool { return r.confirmedPast(position) }) // the server asks after half an hour
	}
}

// CDC-04: nobody takes messages for longer than wal_sender_timeout.
func TestSource_KeepsTheSlotWhileNobodyTakesMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// So long that a busy machine alone does not use it up.
	const timeout = 5 * time.Second
	s := r.source(func(c *cdc.Config) { c.WALSenderTimeout, c.SilenceTimeout = timeout, timeout })
	r.open(s)
	var want []string
	for i := range 20 {
		keys := numbered(fmt.Sprint(i), 1, 300)
		want = append(want, keys...)
		r.insert(keys...)
	}
	pid := r.holder()
	blocked := time.Now()
	statuses := s.Stats().Statuses
	pgtest.Eventually(t, patience, func() error {
		if age := time.Since(s.LastWord()); age > time.Second {
			return fmt.Errorf("the last word is %v old", age)
		}
		if got := s.Stats().Statuses - statuses; time.Since(blocked) < timeout*3/2 || got < 10 {
			return fmt.Errorf("%d statuses in %v", got, time.Since(blocked))
		}
		return nil
	})
	c := r.consume(s, nil)
	c.wants(want...)
	if got := r.holder(); got != pid {
		t.Errorf("the slot is held by pid %d, at first it was %d", got, pid)
	}
}

// CDC-05: one large transaction moves through in constant memory. What is read
// ahead is one batch, and the rest stays with the server.
func TestSource_HandsOutATransactionAsItComes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	r.open(s)
	const rows = 30_000
	r.exec(`insert into outbox.messages (key, payload)
		select 'k-' || i, jsonb_build_object('filler', repeat('x', 1000)) from generate_series(1, $1) i`, rows)
	after := r.walEnd()

	c := r.consume(s, func(row outbox.Row) bool { return row.Key == "k-30000" })
	c.count(rows)
	if !slices.Equal(c.keys(), numbered("k", 1, rows)) {
		t.Error("the messages are not in the order of the transaction")
	}
	if r.confirmedPast(after) {
		t.Error("the slot passed a transaction whose last message is open")
	}
	c.release()
	r.eventually("the slot passes the transaction", func() bool { return r.confirmedPast(after) })
}

// CDC-06: the relay dies in the middle of a transaction with several messages.
func TestPromise3_ATransactionIsConfirmedAsAWhole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	keys := numbered("k", 1, 10)
	for _, accepted := range []int{1, 5, 9} {
		p := r.proxy()
		s := r.via(p)
		r.open(s)
		prefixed := numbered(fmt.Sprintf("%d-k", accepted), 1, 10)
		r.insert(prefixed...)
		after := r.walEnd()
		c := r.consume(s, func(row outbox.Row) bool { return !slices.Contains(prefixed[:accepted], row.Key) })
		c.wants(prefixed...)
		statuses := s.Stats().Statuses
		r.eventually("some statuses go out", func() bool { return s.Stats().Statuses >= statuses+3 })
		if r.confirmedPast(after) {
			t.Errorf("with %d of %d messages resolved the slot passed the transaction", accepted, len(keys))
		}
		p.Reset()
		c.ends()

		next := r.source()
		r.open(next)
		again := r.consume(next, nil)
		again.wants(prefixed...)
		r.eventually("the slot passes the transaction", func() bool { return r.confirmedPast(after) })
		again.stop()
		r.close(next)
	}
}

// CDC-07: later transactions are finished before an earlier one.
func TestPromise3_LaterTransactionsDoNotConfirmAnEarlierOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.proxy()
	s := r.via(p)
	r.open(s)
	c := r.consume(s, func(row outbox.Row) bool { return row.Key == "t1" })
	r.insert("t1")
	first := r.walEnd()
	later := numbered("t", 2, 300)
	for _, key := range later {
		r.insert(key)
	}
	last := r.walEnd()
	all := append([]string{"t1"}, later...)
	c.wants(all...)
	statuses := s.Stats().Statuses
	r.eventually("some statuses go out", func() bool { return s.Stats().Statuses >= statuses+3 })
	if r.confirmedPast(first) {
		t.Error("the slot passed the transaction that is open")
	}
	p.Reset()
	c.ends()

	next := r.source()
	r.open(next)
	again := r.consume(next, nil)
	again.wants(all...)
	r.eventually("the slot passes all of them", func() bool { return r.confirmedPast(last) })
}

// CDC-08: a clean stop reports the last position and frees the slot.
func TestSource_Close_ReportsTheLastPosition(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// No status but the last could have reported it.
	s := r.source(func(c *cdc.Config) {
		c.StatusInterval, c.SilenceTimeout, c.WALSenderTimeout = time.Minute, 3*time.Minute, 3*time.Minute
	})
	r.open(s)
	c := r.consume(s, nil)
	r.insert(numbered("k", 1, 20)...)
	c.count(20)
	r.close(s)
	if r.holder() != 0 {
		t.Error("the slot is still held after Close")
	}
	if err := c.fails(); !errors.Is(err, cdc.ErrClosed) {
		t.Errorf("Next after Close: %v", err)
	}
	if got := s.State(); got != cdc.Closed {
		t.Errorf("state %v after Close", got)
	}
	position := s.Position()

	r.open(s)
	if got := s.StartPosition(); got != position {
		t.Errorf("the next session starts at %s, the last one ended at %s", got, position)
	}
	if s.Created() {
		t.Error("Created says that the second session made the slot")
	}
	again := r.consume(s, nil)
	r.insert("next")
	again.wants("next") // and nothing that was resolved
}

// CDC-09, CDC-10: a publication of all actions, and everything else that can be
// in a stream.
func TestSource_IgnoresWhatIsNotAnInsert(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec("alter publication outbox_relay set (publish = 'insert, update, delete, truncate')")
	r.exec("alter table outbox.messages alter payload set storage external")
	s := r.source()
	r.open(s)
	c := r.consume(s, nil)
	r.exec("create type outbox.mood as enum ('calm', 'busy'); create domain outbox.label as text")
	r.exec("alter table outbox.messages add mood outbox.mood default 'calm', add label outbox.label default 'x'")
	r.exec(`insert into outbox.messages (key, payload) values ('a', jsonb_build_object('filler', repeat('x', 10000)))`)
	r.exec("update outbox.messages set priority = 1")
	r.exec("truncate outbox.messages")
	r.insert("b")
	r.exec("update outbox.messages set key = 'c'")
	r.exec("delete from outbox.messages")
	r.exec("select pg_logical_emit_message(true, 'other', 'x'), pg_logical_emit_message(false, 'other', 'x')")
	r.insert("d")
	after := r.walEnd()
	c.wants("a", "b", "d")
	r.eventually("the slot passes all of it", func() bool { return r.confirmedPast(after) })
	if got := s.Stats().Ignored; got < 4 {
		t.Errorf("%d messages ignored, want 2 updates, 1 delete, 1 truncate at least", got)
	}
	if len(r.logged("publication or table is not as it should be")) == 0 {
		t.Error("nothing in the log about a publication of all actions")
	}
}

// CDC-12: a prepared transaction comes when it is committed.
func TestSource_PreparedTransactionsComeWhenCommitted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	r.open(s)
	c := r.consume(s, nil)
	gid := r.config.Slot
	r.exec("begin")
	r.insert("prepared")
	r.exec("prepare transaction '" + gid + "'")
	r.exec("begin")
	r.insert("never")
	r.exec("prepare transaction '" + gid + "_never'")
	r.insert("t2")
	after := r.walEnd()
	c.wants("t2")
	r.eventually("the slot moves while a transaction is prepared", func() bool { return r.confirmedPast(after) })
	r.exec("rollback prepared '" + gid + "_never'")
	r.exec("commit prepared '" + gid + "'")
	c.wants("t2", "prepared")
}

// CDC-13: the session starts where the slot is, and its position never goes
// back.
func TestSource_StartsAtTheSlotsPosition(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	r.open(s)
	r.close(s)
	keys := numbered("k", 1, 100)
	r.insert(keys...)
	after := r.walEnd()
	for range 5 {
		r.noise()
	}

	r.open(s)
	last := s.Position()
	watchPosition := func() {
		t.Helper()
		now := s.Position()
		if value[bool](r, "select $1::pg_lsn < $2::pg_lsn", now, last) {
			t.Errorf("the position went back from %s to %s", last, now)
		}
		last = now
	}
	c := r.consume(s, everything)
	c.count(100)
	statuses := s.Stats().Statuses
	pgtest.Eventually(t, patience, func() error {
		watchPosition()
		if r.confirmedPast(after) {
			t.Fatal("the slot passed messages that are open")
		}
		if s.Stats().Statuses < statuses+5 {
			return fmt.Errorf("waiting for statuses")
		}
		return nil
	})
	c.release()
	r.eventually("the slot passes them", func() bool { watchPosition(); return r.confirmedPast(after) })
}

// Next with a context that ends leaves the session as it is.
func TestSource_Next_LosesNothingWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	r.open(s)
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := s.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("round %d: %v", i, err)
		}
		cancel()
	}
	r.insert("a", "b")
	c := r.consume(s, nil)
	c.wants("a", "b")
}

// Without a session, and after one, everything answers.
func TestSource_WithoutASession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	if _, err := s.Next(t.Context()); !errors.Is(err, cdc.ErrClosed) {
		t.Errorf("Next: %v, want ErrClosed", err)
	}
	s.Resolve([]uint64{1, 2, 3})
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if got := s.Position(); got != "0/0" || !s.LastWord().IsZero() {
		t.Errorf("position %s, last word %v", got, s.LastWord())
	}
	r.open(s)
	if err := s.Open(t.Context()); err == nil {
		t.Error("a second Open without a Close: no error")
	}
	r.close(s)
	r.close(s)
	s.Resolve([]uint64{1, 2, 3})
}

// A wrong number would make the confirmed flush a guess: the session ends.
func TestSource_Resolve_OfAWrongNumberEndsTheSession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	r.open(s)
	c := r.consume(s, everything)
	r.insert("a")
	after := r.walEnd()
	c.has("a")
	s.Resolve([]uint64{7})
	if err := c.fails(); err == nil {
		t.Error("no error")
	}
	if r.confirmedPast(after) {
		t.Error("the slot passed the message")
	}
	r.open(s)
	again := r.consume(s, nil)
	again.wants("a")
}
