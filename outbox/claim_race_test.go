package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// patience bounds the waits of tests on a busy machine; it only ends broken ones.
const patience = time.Minute

// claimers are callers in transactions of their own, who all want one event.
type claimers struct {
	t       *testing.T
	watch   *pgx.Conn
	pids    []uint32
	answers chan answer
}

// answer is what became of a claim and its transaction.
type answer struct {
	won bool
	err error
}

// claimAtOnce lets n callers claim, and commit, as far as they get.
func claimAtOnce(t *testing.T, url, event string, n int, level pgx.TxIsoLevel) *claimers {
	t.Helper()
	ctx := t.Context()
	c := &claimers{t: t, watch: connect(t, url), answers: make(chan answer, n)}
	for range n {
		conn := connect(t, url)
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, `select from outbox.claims`); err != nil { // takes the snapshot
			t.Fatal(err)
		}
		c.pids = append(c.pids, conn.PgConn().PID())
		go func() {
			won, err := outbox.Claim(ctx, tx, "c", event, time.Hour)
			if err == nil {
				err = tx.Commit(ctx)
			} else {
				_ = tx.Rollback(ctx)
			}
			c.answers <- answer{won, err}
		}()
	}
	return c
}

// awaitWaiting waits until all of them wait for a lock.
func (c *claimers) awaitWaiting() {
	c.t.Helper()
	pgtest.Eventually(c.t, patience, func() error {
		var waiting int
		err := c.watch.QueryRow(context.Background(),
			`select count(*) from pg_stat_activity where pid = any ($1) and wait_event_type = 'Lock'`, c.pids).Scan(&waiting)
		if err == nil && waiting != len(c.pids) {
			err = fmt.Errorf("%d of %d wait", waiting, len(c.pids))
		}
		return err
	})
}

// outcome counts the answers: "won", "lost", or the SQLSTATE of an error.
func (c *claimers) outcome() map[string]int {
	c.t.Helper()
	got := map[string]int{}
	for range c.pids {
		a := <-c.answers
		refused, isSQL := errors.AsType[*pgconn.PgError](a.err)
		switch {
		case isSQL:
			got[refused.Code]++
		case a.err != nil:
			c.t.Errorf("a claim: %v", a.err)
		case a.won:
			got["won"]++
		default:
			got["lost"]++
		}
	}
	return got
}

// Somebody does something with the claim in a transaction that stays open while
// all others come. However that ends, one of all has the claim in the end.
func TestClaim_OneOfAllWhoWait(t *testing.T) {
	t.Parallel()
	const n = 5
	const (
		expired = `insert into outbox.claims (consumer, event_id, expires_at, result) values ('c', $1, now() - interval '1 hour', '{"old": 1}')`
		claim   = `select outbox.claim('c', $1, '1 hour')`
		remove  = `delete from outbox.claims where event_id = $1`
	)
	url := pgtest.Migrated(t)
	for _, c := range []struct {
		name, before, holds string
		level               pgx.TxIsoLevel
		committed           map[string]int
		rolledBack          map[string]int
	}{
		{"a new claim", "", claim, pgx.ReadCommitted, map[string]int{"lost": n}, map[string]int{"won": 1, "lost": n - 1}},
		{"an expired one is taken", expired, claim, pgx.ReadCommitted, map[string]int{"lost": n}, map[string]int{"won": 1, "lost": n - 1}},
		{"an expired one is removed", expired, remove, pgx.ReadCommitted, map[string]int{"won": 1, "lost": n - 1}, map[string]int{"won": 1, "lost": n - 1}},
		// Whose snapshot is older than another's claim repeats its transaction.
		{"a new claim, serializable", "", claim, pgx.Serializable, map[string]int{"40001": n}, map[string]int{"won": 1, "40001": n - 1}},
		{"an expired one is taken, serializable", expired, claim, pgx.Serializable, map[string]int{"40001": n}, map[string]int{"won": 1, "40001": n - 1}},
		{"an expired one is removed, repeatable read", expired, remove, pgx.RepeatableRead, map[string]int{"won": 1, "40001": n - 1}, map[string]int{"won": 1, "40001": n - 1}},
	} {
		for end, want := range map[string]map[string]int{"commit": c.committed, "rollback": c.rolledBack, "commit prepared": c.committed, "rollback prepared": c.rolledBack} {
			t.Run(c.name+", "+end, func(t *testing.T) {
				event := c.name + ", " + end
				holder := connect(t, url)
				if c.before != "" {
					exec(t, holder, c.before, event)
				}
				exec(t, holder, `begin`)
				exec(t, holder, c.holds, event)
				if strings.HasSuffix(end, " prepared") {
					name := fmt.Sprintf("'%s, %s'", holder.Config().Database, event)
					exec(t, holder, `prepare transaction `+name)
					end += " " + name
				}
				all := claimAtOnce(t, url, event, n, c.level)
				all.awaitWaiting()
				exec(t, holder, end)
				if got := all.outcome(); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("got %v, want %v", got, want)
				}
				if won, err := outbox.Claim(t.Context(), begin(t, holder), "c", event, time.Hour); won || err != nil {
					t.Errorf("one who comes later: %t, %v", won, err)
				}
			})
		}
	}
}

// A claim ends with its savepoint, and is the transaction's own otherwise.
func TestClaim_Savepoint(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	tx := begin(t, connect(t, pgtest.Migrated(t)))
	claim := func(tx pgx.Tx, want bool) {
		t.Helper()
		if won, err := outbox.Claim(ctx, tx, "c", "e", time.Hour); won != want || err != nil {
			t.Errorf("%t, %v, want %t", won, err, want)
		}
	}
	inner, err := tx.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	claim(inner, true)
	claim(inner, false)
	if err := inner.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	claim(tx, true)
	claim(tx, false)
}

// The time of a claim begins with its transaction. One that ends before its
// transaction does protects nobody.
func TestClaim_EndsBeforeItsTransaction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := pgtest.Migrated(t)
	slow := begin(t, connect(t, url))
	if won, err := outbox.Claim(ctx, slow, "c", "e", time.Microsecond); !won || err != nil {
		t.Fatalf("%t, %v", won, err)
	}
	next := begin(t, connect(t, url))
	if _, err := next.Exec(ctx, `select`); err != nil { // its time is later than the claim's end
		t.Fatal(err)
	}
	commit(t, slow)
	if won, err := outbox.Claim(ctx, next, "c", "e", time.Hour); !won || err != nil {
		t.Errorf("%t, %v", won, err)
	}
}
