package relay_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/relay"
)

const countClaims = `select count(*) from outbox.claims`

// expire makes n claims that have expired, and ten that have not.
func (b *bundle) expire(n int) {
	b.t.Helper()
	b.exec(`insert into outbox.claims (consumer, event_id, expires_at)
		select 'c', 'e-' || i, now() - interval '1 day' + i * interval '1 second' from generate_series(1, $1::int) i`, n)
	b.exec(`insert into outbox.claims (consumer, event_id, expires_at)
		select 'c', 'new-' || i, now() + interval '1 hour' from generate_series(1, 10) i`)
}

// another is a connection beside the relay's.
func (b *bundle) another() *pgx.Conn {
	b.t.Helper()
	conn, err := pgx.ConnectConfig(context.Background(), b.conn.Config())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// begin begins a transaction with these statements.
func (b *bundle) begin(statements ...string) pgx.Tx {
	b.t.Helper()
	tx, err := b.another().Begin(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, sql := range statements {
		if _, err := tx.Exec(context.Background(), sql); err != nil {
			b.t.Fatalf("%s: %v", sql, err)
		}
	}
	return tx
}

// startAs runs a relay with a connection of its own choice until the test's end.
func (b *bundle) startAs(config *pgx.ConnConfig) *relay.Relay {
	ctx, stop := context.WithCancel(context.Background())
	moving, ended := relay.New(b.cfg, config, b.source, &accept{}, zap.NewNop()), make(chan error, 1)
	go func() { ended <- moving.Run(ctx) }()
	b.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	})
	return moving
}

// Somebody takes expired claims again, in transactions that stay open, and one
// that is prepared and stays for good: retention removes all the others, and
// holds nothing that they want next.
func TestRetention_WaitsForNoClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	b.expire(2500)
	open := b.begin(`select outbox.claim('c', 'e-700', '1 day')`)
	b.begin(`select outbox.claim('c', 'e-1800', '1 day')`, `prepare transaction 'claim `+b.conn.Config().Database+`'`)
	b.start(&accept{})
	b.awaitCount(2+10, countClaims)
	if _, err := open.Exec(ctx, `set local lock_timeout = '10s'`); err != nil {
		t.Fatal(err)
	}
	for _, event := range []string{"e-1", "e-699", "e-2500"} {
		var won bool
		if err := open.QueryRow(ctx, `select outbox.claim('c', $1, '1 day')`, event).Scan(&won); err != nil || !won {
			t.Errorf("claim %s, which was removed: %t, %v", event, won, err)
		}
	}
	if err := open.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if n := b.count(countClaims + ` where expires_at > now()`); n != 10+4 {
		t.Errorf("%d claims are in force, want 14", n)
	}
}

// While somebody's transaction keeps removed claims from being vacuumed, a batch
// does not look through what the batches before it have removed.
func TestRetention_RemovedClaimsAreNotReadAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.source.position = "FFFFFFFF/0" // retention does not come again within a minute
	b.exec(`alter table outbox.claims set (autovacuum_enabled = false)`)
	const expired = 20_000
	b.expire(expired)
	reader := b.begin(`set transaction isolation level repeatable read`, `select from outbox.claims`)
	b.start(&accept{})
	b.awaitCount(10, countClaims)
	if err := b.stopped(); err != nil {
		t.Fatal(err)
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	var read int64
	pgtest.Eventually(t, patience, func() error { // statistics come late
		return b.conn.QueryRow(t.Context(), `select idx_tup_read from pg_stat_user_indexes
			where indexrelname = 'claims_expires_at' and idx_tup_read > 0`).Scan(&read)
	})
	if most := int64(2 * expired); read > most {
		t.Errorf("%d entries of the index were read to remove %d claims, want at most %d", read, expired, most)
	}
}

// A role that may not remove messages removes what it may.
func TestRetention_WithoutRightsOnMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Retention = time.Hour
	b.source.position = "FFFFFFFF/0"
	role := pgx.Identifier{"relay of " + b.conn.Config().Database}.Sanitize()
	b.exec(`create role ` + role + ` login`)
	t.Cleanup(func() {
		b.exec(`drop owned by ` + role)
		b.exec(`drop role ` + role)
	})
	b.exec(`grant usage on schema outbox to ` + role)
	b.exec(`grant select, insert, update, delete on all tables in schema outbox to ` + role)
	b.exec(`grant execute on all functions in schema outbox to ` + role)
	b.exec(`grant select on all sequences in schema outbox to ` + role)
	b.exec(`revoke delete on outbox.messages from ` + role)
	b.exec(`insert into outbox.relays (slot, reconciled_at) values ('s', now())`)
	b.exec(`insert into outbox.messages (key, queue, payload) values ('k', 'q', '{}')`)
	b.exec(`insert into outbox.dispatched (message_id, attempts, dispatched_at) select id, 1, now() - interval '2 hours' from outbox.messages`)
	b.expire(100)
	config := b.conn.Config()
	config.User = "relay of " + config.Database
	b.startAs(config)
	b.awaitCount(10, countClaims)
	if n := b.count(countDispatched); n != 1 {
		t.Errorf("%d outcomes are left, want 1", n)
	}
}

// A loop that removes for minutes comes by with every batch: it is not stuck.
func TestRetention_ComesByWithEveryBatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into outbox.relays (slot, reconciled_at) values ('s', now())`)
	b.expire(2500)
	// The second batch does not end.
	b.exec(`create function public.wait() returns trigger language plpgsql set lock_timeout = 0 as $$
		begin perform pg_catalog.pg_advisory_xact_lock(1); return old; end $$`)
	b.exec(`create trigger wait before delete on outbox.claims for each row when (old.event_id = 'e-1500') execute function public.wait()`)
	held := b.begin(`select pg_advisory_xact_lock(1)`)
	moving := b.startAs(b.conn.Config())
	pgtest.Eventually(t, patience, func() error {
		for _, loop := range moving.State().Loops {
			if loop.Name == "retention" && loop.Busy != nil && loop.Turned != nil {
				return nil
			}
		}
		return errors.New("retention has not come by")
	})
	if n := b.count(countClaims); n != 1510 {
		t.Errorf("it came by when %d claims were left, want 1510", n)
	}
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.awaitCount(10, countClaims)
}

// Messages that were written long before they were dispatched have the lowest ids,
// and are kept: what is old behind them is removed all the same.
func TestRetention_PassesOverWhatWasDispatchedLate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Retention = 7 * 24 * time.Hour
	b.source.position = "FFFFFFFF/0"
	b.exec(`insert into outbox.relays (slot, reconciled_at) values ('s', now())`)
	b.exec(`insert into outbox.messages (key, queue, payload, created_at)
		select 'late-' || i, 'orders', '{}', now() - interval '30 days' from generate_series(1, 2500) i`)
	b.exec(`insert into outbox.dispatched (message_id, attempts) select id, 1 from outbox.messages`)
	b.exec(`insert into outbox.messages (key, queue, payload, created_at)
		select 'old-' || i, 'orders', '{}', now() - interval '20 days' from generate_series(1, 1500) i`)
	b.exec(`insert into outbox.dispatched (message_id, attempts, dispatched_at)
		select id, 1, now() - interval '20 days' from outbox.messages where key like 'old-%'`)
	b.startAs(b.conn.Config())
	b.awaitCount(2500, `select count(*) from outbox.messages`)
	if n := b.count(countDispatched); n != 2500 {
		t.Errorf("%d outcomes are left, want 2500", n)
	}
}

// A relay that died and is started again long after: what the stream shows once more
// is known by its old outcome, and goes only when the stream is past it.
func TestRetention_WaitsForTheStream(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Retention = time.Hour
	b.exec(`insert into outbox.relays (slot, reconciled_at) values ('s', now())`)
	b.exec(`insert into outbox.messages (key, queue, payload, created_at) values ('k1', 'q', '{}', now() - interval '2 hours')`)
	b.exec(`insert into outbox.dispatched (message_id, attempts, dispatched_at) select id, 1, now() - interval '2 hours' from outbox.messages`)
	b.expire(100)
	queue := &accept{}
	b.start(queue)
	b.awaitCount(10, countClaims) // the last thing that retention removes
	b.source.batches <- rows(1, 1)
	b.source.awaitResolved(t, 1)
	if len(queue.order) != 0 {
		t.Error("a message was sent again whose outcome was old")
	}
	b.source.moveOn("FFFFFFFF/0")
	b.awaitCount(0, `select count(*) from outbox.messages`)
}

// Somebody made the numbers begin again: a message whose number has the old outcome
// of another one is not removed while it is deferred.
func TestRetention_KeepsYoungMessagesWithAnOldOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Retention = time.Hour
	b.source.position = "FFFFFFFF/0"
	b.exec(`insert into outbox.relays (slot, reconciled_at) values ('s', now())`)
	b.exec(`insert into outbox.messages (key, queue, payload, created_at) select 'k' || i, 'q', '{}', now() - i * interval '40 minutes' from generate_series(1, 2) i`)
	b.exec(`insert into outbox.dispatched (message_id, attempts, dispatched_at) select id, 1, now() - interval '3 hours' from outbox.messages`)
	b.exec(`insert into outbox.deferred (message_id, queue, reason, not_before) values (1, 'q', 'transient', now() + interval '1 hour')`)
	b.start(&accept{})
	b.awaitCount(1, countDispatched)
	b.awaitCount(1, `select count(*) from outbox.messages where id = 1`)
}
