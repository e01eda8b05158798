package relay

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// A server goes on with the reconciliation of a relay that is gone. Who takes over
// begins after its end, or it has no effect: rows that come later would be of
// messages that have gone out meanwhile.
func TestReconcile_OfAnEarlierEpoch(t *testing.T) {
	t.Parallel()
	base, err := pgx.ParseConfig(pgtest.Migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	deferred := func() (n int64) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), "select count(*) from outbox.deferred").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	exec(`create function wait() returns trigger language plpgsql as 'begin perform pg_catalog.pg_advisory_xact_lock(1); return new; end'`)
	exec(`create trigger wait before insert on outbox.deferred for each row execute function wait()`)
	exec(`select pg_advisory_lock(1)`)
	exec(`insert into outbox.messages (key, queue, payload) select 'k' || i, 'q', '{}' from generate_series(1, 3) i`)
	dialer := newDialer(base, "s", zap.NewNop())
	before, after := newStore(dialer, "outbox", "s"), newStore(dialer, "outbox", "s")
	defer before.close(t.Context())
	defer after.close(t.Context())
	for _, s := range []*store{before, after} { // they wait for as long as the test takes
		err := s.with(t.Context(), func(conn *pgx.Conn) error {
			_, err := conn.Exec(t.Context(), "set lock_timeout = 0")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // a store that waits cannot be closed
	awaitWaiting := func(want int) {
		t.Helper()
		pgtest.Eventually(t, time.Minute, func() error {
			var n int
			err := conn.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend' and wait_event_type = 'Lock'").Scan(&n)
			if err == nil && n != want {
				err = fmt.Errorf("%d sessions wait for a lock, want %d", n, want)
			}
			return err
		})
	}

	first, err := before.takeOver(t.Context(), "one", "", "0/1", true)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1) // one result
	go func() {
		_, err := before.reconcile(ctx, first.epoch, "0/1")
		ended <- err
	}()
	awaitWaiting(1) // in the middle of it
	var second tenure
	taken := make(chan error, 1) // one result
	go func() {
		var err error
		second, err = after.takeOver(ctx, "two", "", "0/1", false)
		taken <- err
	}()
	awaitWaiting(2)
	exec(`select pg_advisory_unlock(1)`)
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	if n := deferred(); n != 3 || !second.reconciled {
		t.Errorf("%d rows when the next epoch begins, %+v", n, second)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}

	exec("delete from outbox.deferred")
	if _, err := before.reconcile(t.Context(), first.epoch, "0/1"); !errors.Is(classifyWrite(errors.Unwrap(err)), ErrEpochLost) {
		t.Errorf("under an epoch that has ended: %v", err)
	}
	if n := deferred(); n != 0 {
		t.Errorf("%d rows of an epoch that has ended", n)
	}
}
