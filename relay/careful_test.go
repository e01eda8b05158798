package relay_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay"
)

// diedBefore makes the next start one after others that ended with a death, the
// last ones with a message written down.
func (b *bundle) diedBefore(starts int, suspect, deaths any) {
	b.t.Helper()
	b.exec(`insert into outbox.relays (slot, reconciled_at, unclean_starts, suspect, suspect_attempts)
		values ('s', now(), $1, $2, $3)`, starts, suspect, deaths)
}

// record is what the relay's row says of the starts.
func (b *bundle) record() (text string) {
	b.t.Helper()
	err := b.conn.QueryRow(context.Background(), `
		select concat_ws(' ', unclean_starts, suspect, suspect_attempts) from outbox.relays where slot = 's'`).Scan(&text)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		b.t.Fatal(err)
	}
	return text
}

func (b *bundle) awaitRecord(want string) {
	b.t.Helper()
	pgtest.Eventually(b.t, patience, func() error {
		if got := b.record(); got != want {
			return fmt.Errorf("the record is %q, want %q", got, want)
		}
		return nil
	})
}

// free are messages that run side by side.
func free(from, to int64) []outbox.Row {
	all := rows(from, to)
	for i := range all {
		all[i].OrderingKey = ""
	}
	return all
}

// hangar keeps requests in flight until the test lets them land.
type hangar struct {
	flying chan int64
	land   chan error
	now    atomic.Int32
	most   atomic.Int32
}

func newHangar() *hangar {
	return &hangar{flying: make(chan int64), land: make(chan error)}
}

func (h *hangar) Publish(ctx context.Context, row *outbox.Row) (relay.Receipt, error) {
	n := h.now.Add(1)
	defer h.now.Add(-1)
	for most := h.most.Load(); n > most && !h.most.CompareAndSwap(most, n); most = h.most.Load() {
	}
	select {
	case h.flying <- row.ID:
	case <-ctx.Done():
		return relay.Receipt{}, ctx.Err()
	}
	select {
	case err := <-h.land:
		return relay.Receipt{}, err
	case <-ctx.Done():
		return relay.Receipt{}, ctx.Err()
	}
}

// At the third start in a row that followed a death one request at a time goes
// out, and the row says which, until the relay has lived for a minute.
func TestCareful_OneAtATimeUntilItHasLived(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.diedBefore(2, nil, nil)
	queue := newHangar()
	b.start(queue)
	b.source.batches <- free(1, 30)
	for id := int64(1); id <= 10; id++ {
		if got := <-queue.flying; got != id {
			t.Fatalf("message %d is in flight, want %d", got, id)
		}
		if got, want := b.record(), fmt.Sprintf("3 %d 1", id); got != want {
			t.Fatalf("the record is %q while message %d is in flight, want %q", got, id, want)
		}
		queue.land <- nil
	}
	<-queue.flying
	if got := queue.most.Load(); got != 1 {
		t.Errorf("%d requests at once while the relay is careful", got)
	}
	close(b.minute)
	for range b.cfg.MaxInFlight - 1 {
		<-queue.flying // beside the one that is there
	}
	b.awaitRecord("0")
	for range b.cfg.MaxInFlight {
		queue.land <- nil
	}
	for range 30 - 10 - b.cfg.MaxInFlight {
		<-queue.flying
		queue.land <- nil
	}
	b.source.awaitResolved(t, 30)
	if got := b.record(); got != "0" {
		t.Errorf("the record is %q after the minute", got)
	}
}

// The first two starts after a death are as all others.
func TestCareful_NotBeforeTheThirdStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.diedBefore(1, nil, nil)
	queue := newHangar()
	b.start(queue)
	b.source.batches <- free(1, 8)
	for range b.cfg.MaxInFlight {
		<-queue.flying
	}
	if got := b.record(); got != "2" {
		t.Errorf("the record is %q, want two starts", got)
	}
}

// Deaths are counted for the same message only, and one for a session, however
// many requests it made.
func TestCareful_CountsDeathsWithAMessage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		suspect, deaths any
		record          string
	}{
		{"without a suspect", nil, nil, "4 1 1"},
		{"the suspect again", 1, 2, "4 1 3"},
		{"another suspect", 2, 2, "4 1 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.diedBefore(3, c.suspect, c.deaths)
			queue := newHangar()
			b.start(queue)
			b.source.batches <- rows(1, 1)
			for range 4 {
				<-queue.flying
				if got := b.record(); got != c.record {
					t.Errorf("the record is %q, want %q", got, c.record)
				}
				queue.land <- &relay.PublishError{Class: relay.Transient, Status: 500}
			}
			<-queue.flying
			queue.land <- nil
			b.source.awaitResolved(t, 1)
			if got := b.count(countDispatched + ` where attempts = 5`); got != 1 {
				t.Error("the message is not marked with its five attempts")
			}
		})
	}
}

// A message with which the relay died three times gets no request. Its lane goes
// on, and redriven at once it goes out.
func TestCareful_TheCulpritBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.diedBefore(5, 2, 3)
	b.exec(`insert into outbox.messages (key, queue, ordering_key, payload) select 'k' || i, 'q', 'o', '{}' from generate_series(1, 3) i`)
	queue := &accept{}
	b.start(queue)
	b.source.batches <- rows(1, 3)
	b.source.awaitResolved(t, 3)
	var dead string
	err := b.conn.QueryRow(t.Context(), `select concat_ws('|', message_id, reason, attempts, last_error) from outbox.dead_letters where unknown_since is not null`).Scan(&dead)
	if want := "2|crashed_relay|3|refused: the relay died while its request was under way, 3 times in a row"; err != nil || dead != want {
		t.Errorf("dead letter %q, %v, want %q", dead, err, want)
	}
	b.exec(`delete from outbox.dead_letters`)
	b.exec(`insert into outbox.deferred (message_id, queue, ordering_key, reason, not_before, attempts) values (2, 'q', 'o', 'redriven', now(), 3)`)
	b.awaitCount(3, countDispatched)
	if err := b.stopped(); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(queue.order), "[1 3 2]"; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
	if got := b.record(); got != "0" {
		t.Errorf("the record is %q after a stop", got)
	}
}

// A relay that lost its slot to another one without being able to take its start
// back, does so from outside: it lives.
func TestCareful_ALivingRelayTakesItsStartBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.source.busy = make(chan struct{})
	b.start(&accept{})
	b.source.batches <- nil // the session has begun
	b.awaitRecord("1")
	b.exec(`update outbox.relays set epoch = epoch + 1, unclean_starts = unclean_starts + 1`) // another relay starts
	b.source.broken <- errors.New("the stream is lost")
	b.awaitRecord("1")
	close(b.source.busy)
	b.awaitRecord("2")
}

// A stream that is lost while a request is under way is no death with that
// message, however often it happens.
func TestCareful_ALostStreamIsNoDeath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.diedBefore(3, 1, 1)
	queue := newHangar()
	b.start(queue)
	for range 5 {
		b.source.batches <- rows(1, 1)
		<-queue.flying
		if got := b.record(); got != "4 1 2" {
			t.Fatalf("the record is %q, want the one death of before and this start", got)
		}
		b.source.broken <- errors.New("the stream is lost")
	}
	b.source.batches <- rows(1, 1)
	<-queue.flying
	queue.land <- nil
	b.source.awaitResolved(t, 1)
	b.awaitCount(1, countDispatched)
}

// A relay that cannot write a message down, because another one has the epoch,
// does not send it.
func TestCareful_EpochLost_SendsNothingMore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.OutcomeLinger = patience // the writer does not notice
	b.diedBefore(3, nil, nil)
	queue := newHangar()
	b.start(queue)
	b.source.batches <- rows(1, 2)
	<-queue.flying
	b.exec(`update outbox.relays set epoch = epoch + 1`)
	queue.land <- nil
	pgtest.Eventually(t, patience, func() error {
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		if b.source.opened < 2 {
			return errors.New("the session goes on")
		}
		return nil
	})
	if got := queue.most.Load(); got != 1 || queue.now.Load() != 0 {
		t.Error("another message was sent")
	}
}

// A process that lives through the end of its session did not start again, not
// even if it cannot take its start back.
func TestStarts_ALostStreamIsNone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, before, record string }{
		{"taken back", `select 1`, "0"},
		{"not taken back", `
			create function public.no() returns trigger language plpgsql as $$ begin raise 'no'; end $$;
			create trigger no before update of suspect on outbox.relays for each row execute function public.no()`, "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec(c.before)
			b.start(&accept{})
			for epoch := range 5 {
				b.awaitCount(1, `select count(*) from outbox.relays where epoch = $1`, epoch+1)
				b.source.broken <- errors.New("the stream is lost")
			}
			b.awaitCount(1, `select count(*) from outbox.relays where epoch = 6`)
			b.awaitRecord(c.record)
		})
	}
}

// Starts count when they follow a death: a stop and a minute take them back.
func TestStarts_WhatTakesThemBack(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*bundle){
		"a stop":   func(b *bundle) { _ = b.stopped() },
		"a minute": func(b *bundle) { close(b.minute) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.start(&accept{})
			b.awaitRecord("1")
			act(b)
			b.awaitRecord("0")
		})
	}
}

// In normal life the guard writes nothing for a message.
func TestStarts_MessagesCostNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into outbox.relays (slot, reconciled_at, confirmed_lsn) values ('s', now(), '0/1234')`)
	b.exec(`create table public.writes (n int)`)
	b.exec(`create function public.note() returns trigger language plpgsql as $$ begin insert into public.writes values (1); return null; end $$`)
	b.exec(`create trigger note after update on outbox.relays for each row execute function public.note()`)
	b.start(&accept{})
	b.source.batches <- rows(1, 20)
	b.source.awaitResolved(t, 20) // the beginning is over
	before := b.count(`select count(*) from public.writes`)
	if before == 0 {
		t.Fatal("the start was not seen")
	}
	for i := range int64(20) {
		b.source.batches <- rows(20*i+21, 20*i+40)
	}
	b.source.awaitResolved(t, 420)
	if got := b.count(`select count(*) from public.writes`); got != before {
		t.Errorf("%d writes to the relay's row for 400 messages at one position", got-before)
	}
}
