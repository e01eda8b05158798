package consumer_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

var errBroken = errors.New("broken")

// One of 32 deliveries of an event at once does the work; the others are repeats.
func TestOnce_ConcurrentDeliveries(t *testing.T) {
	t.Parallel()
	for name, level := range map[string]pgx.TxIsoLevel{"read committed": "", "serializable": pgx.Serializable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			c := l.once(book)
			c.Options.IsoLevel = level
			c.Attempts = 100
			var handled, repeated atomic.Int32
			var all sync.WaitGroup
			for range 32 {
				all.Go(func() {
					outcome, err := c.Handle(context.Background(), consumer.Message{ID: "e-1"})
					switch {
					case err != nil:
						t.Error(err)
					case outcome == consumer.Handled:
						handled.Add(1)
					case outcome == consumer.Repeated:
						repeated.Add(1)
					}
				})
			}
			all.Wait()
			if handled.Load() != 1 || repeated.Load() != 31 {
				t.Errorf("%d handled and %d repeated, want 1 and 31", handled.Load(), repeated.Load())
			}
			l.want(1, 1)
		})
	}
}

// Whatever a handler does instead of succeeding leaves neither work nor claim,
// and the next delivery is the first one.
func TestOnce_WhatFailsLeavesNoClaim(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(ctx context.Context, tx pgx.Tx) error
		want consumer.Outcome
	}{
		"an error":            {func(context.Context, pgx.Tx) error { return errBroken }, consumer.Failed},
		"a permanent error":   {func(context.Context, pgx.Tx) error { return consumer.Permanent(errBroken) }, consumer.Refused},
		"a panic":             {func(context.Context, pgx.Tx) error { panic("at the disco") }, consumer.Failed},
		"a broken index":      {func(context.Context, pgx.Tx) error { return make([]error, 1)[len(os.Args)] }, consumer.Failed},
		"an error swallowed":  {func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, "select 1/0"); return nil }, consumer.Failed},
		"the connection dies": {func(ctx context.Context, tx pgx.Tx) error { return tx.Conn().PgConn().Close(ctx) }, consumer.Failed},
		"rolled back":         {func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }, consumer.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			c := l.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
				return errors.Join(book(ctx, tx, m), test.end(ctx, tx))
			})
			outcome, err := c.Handle(context.Background(), consumer.Message{ID: "e-1"})
			if outcome != test.want || err == nil {
				t.Errorf("%s, %v, want %s and an error", outcome, err, test.want)
			}
			l.want(0, 0)
			if outcome, err := l.once(book).Handle(context.Background(), consumer.Message{ID: "e-1"}); outcome != consumer.Handled || err != nil {
				t.Errorf("the next delivery: %s, %v", outcome, err)
			}
			l.want(1, 1)
		})
	}
}

// A panic is told with its place.
func TestOnce_Panic(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	c := l.once(func(context.Context, pgx.Tx, consumer.Message) error { panic("at the disco") })
	_, err := c.Handle(context.Background(), consumer.Message{ID: "e-1"})
	var thrown *consumer.PanicError
	if !errors.As(err, &thrown) || thrown.Value != "at the disco" || len(thrown.Stack) == 0 {
		t.Errorf("%v", err)
	}
}

// A handler that ends its goroutine, as t.FailNow does, gives the connection back.
func TestOnce_GoroutineEnds(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	c := l.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		_ = book(ctx, tx, m)
		runtime.Goexit()
		return nil
	})
	var one sync.WaitGroup
	one.Go(func() { _, _ = c.Handle(context.Background(), consumer.Message{ID: "e-1"}) })
	one.Wait()
	l.want(0, 0)
	if n := l.pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are still out", n)
	}
}

// When its context ends, a handler's work is rolled back, and the connection goes
// back to the pool.
func TestOnce_ContextEnds(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	ctx, cancel := context.WithCancel(context.Background())
	made := l.pool.Stat().NewConnsCount()
	outcome, err := l.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		err := book(ctx, tx, m)
		cancel()
		return errors.Join(err, ctx.Err())
	}).Handle(ctx, consumer.Message{ID: "e-1"})
	if outcome != consumer.Failed || !errors.Is(err, context.Canceled) {
		t.Errorf("%s, %v", outcome, err)
	}
	l.want(0, 0)
	if got := l.pool.Stat().NewConnsCount(); got != made {
		t.Errorf("%d new connections, want that the old one goes on", got-made)
	}
}

// Collisions are tried again, so often and no more; each attempt is a transaction
// of its own.
func TestOnce_CollisionsAreTriedAgain(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40001", "40P01"} {
		for _, test := range []struct {
			collisions, calls int
			want              consumer.Outcome
		}{{2, 3, consumer.Handled}, {9, 3, consumer.Failed}} {
			l := newLedger(t)
			calls := 0
			c := l.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
				calls++
				if err := book(ctx, tx, m); err != nil || calls > test.collisions {
					return err
				}
				_, err := tx.Exec(ctx, "do $$ begin raise exception 'collision' using errcode = '"+code+"'; end $$")
				return err
			})
			c.Attempts = 3
			outcome, err := c.Handle(context.Background(), consumer.Message{ID: "e-1"})
			if outcome != test.want || calls != test.calls || (err == nil) != outcome.Done() {
				t.Errorf("%s, %d collisions: %s after %d calls, %v", code, test.collisions, outcome, calls, err)
			}
			var answer *pgconn.PgError
			if test.want == consumer.Failed && (!errors.As(err, &answer) || answer.Code != code) {
				t.Errorf("%s: %v", code, err)
			}
			if outcome.Done() {
				l.want(1, 1)
			} else {
				l.want(0, 0)
			}
		}
	}
}

// What the handler stored is there for a repeat, and only for who has the name.
func TestHandleResult(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	c := l.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		return errors.Join(book(ctx, tx, m), outbox.Complete(ctx, tx, "books", m.ID, map[string]int{"entry": 7}))
	})
	for _, want := range []consumer.Outcome{consumer.Handled, consumer.Repeated} {
		var got struct{ Entry int }
		outcome, err := c.HandleResult(context.Background(), consumer.Message{ID: "e-1"}, &got)
		if outcome != want || err != nil || got.Entry != 7 {
			t.Errorf("%s, %v, %+v, want %s and entry 7", outcome, err, got, want)
		}
	}
	outcome, err := consumer.Once(context.Background(), l.pool, "mailer", time.Hour, consumer.Message{ID: "e-1"}, book)
	if outcome != consumer.Handled || err != nil {
		t.Errorf("another consumer: %s, %v", outcome, err)
	}
	l.want(2, 2)
}

// A claim ends with its retention; then the event is handled again.
func TestOnce_AfterTheRetention(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	c := l.once(book)
	for _, want := range []consumer.Outcome{consumer.Handled, consumer.Repeated} {
		if outcome, err := c.Handle(context.Background(), consumer.Message{ID: "e-1"}); outcome != want || err != nil {
			t.Errorf("%s, %v, want %s", outcome, err, want)
		}
	}
	l.exec("update outbox.claims set expires_at = now() - interval '1 second'")
	if outcome, err := c.Handle(context.Background(), consumer.Message{ID: "e-1"}); outcome != consumer.Handled || err != nil {
		t.Errorf("after the retention: %s, %v", outcome, err)
	}
	l.want(2, 1)
}

// The server dies at the end of the work: the next delivery does what is right.
func TestOnce_ServerDies(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	l := openLedger(t, server.Migrated(t))
	c := l.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		if err := book(ctx, tx, m); err != nil {
			return err
		}
		return server.Restart("immediate")
	})
	if outcome, err := c.Handle(context.Background(), consumer.Message{ID: "e-1"}); outcome != consumer.Failed || err == nil {
		t.Errorf("%s, %v", outcome, err)
	}
	c = l.once(book)
	pgtest.Eventually(t, patience, func() error {
		_, err := c.Handle(context.Background(), consumer.Message{ID: "e-1"})
		return err
	})
	l.want(1, 1)
}

func TestOnce_RefusesWhatHasNoID(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	outcome, err := l.once(book).Handle(context.Background(), consumer.Message{})
	if outcome != consumer.Refused || !errors.Is(err, consumer.ErrMalformed) {
		t.Errorf("%s, %v", outcome, err)
	}
	l.want(0, 0)
}

func TestPermanent(t *testing.T) {
	t.Parallel()
	if consumer.Permanent(nil) != nil {
		t.Error("Permanent(nil) is an error")
	}
	if err := consumer.Permanent(errBroken); !consumer.IsPermanent(err) || !errors.Is(err, errBroken) || err.Error() != "broken" {
		t.Errorf("%v", err)
	}
	if consumer.IsPermanent(errBroken) {
		t.Error("an ordinary error is permanent")
	}
}
