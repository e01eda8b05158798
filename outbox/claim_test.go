package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/schema"
)

// claims are the functions for one kind of transaction.
type claims struct {
	claim    func(event string, retention time.Duration) (bool, error)
	complete func(event string, result any) error
	result   func(event string, into any) (bool, error)
	commit   func() error
}

func claimsOfPgx(t *testing.T, url string) claims {
	tx := begin(t, connect(t, url))
	ctx := context.Background()
	return claims{
		claim: func(event string, retention time.Duration) (bool, error) {
			return outbox.Claim(ctx, tx, "mailer", event, retention)
		},
		complete: func(event string, result any) error { return outbox.Complete(ctx, tx, "mailer", event, result) },
		result:   func(event string, into any) (bool, error) { return outbox.Result(ctx, tx, "mailer", event, into) },
		commit:   func() error { return tx.Commit(ctx) },
	}
}

func claimsOfSQL(t *testing.T, url string) claims {
	ctx := context.Background()
	tx, err := openSQL(t, url).BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	return claims{
		claim: func(event string, retention time.Duration) (bool, error) {
			return outbox.ClaimSQL(ctx, tx, "mailer", event, retention)
		},
		complete: func(event string, result any) error { return outbox.CompleteSQL(ctx, tx, "mailer", event, result) },
		result:   func(event string, into any) (bool, error) { return outbox.ResultSQL(ctx, tx, "mailer", event, into) },
		commit:   tx.Commit,
	}
}

// A claim goes to the first caller; a repeat finds what was stored with it,
// until it has expired.
func TestClaim_OnceWithItsResult(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(*testing.T, string) claims{"pgx": claimsOfPgx, "database/sql": claimsOfSQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Migrated(t)
			first := use(t, url)
			if won, err := first.claim("e-1", time.Hour); !won || err != nil {
				t.Fatalf("first claim: %t, %v", won, err)
			}
			if err := first.complete("e-1", order{ID: 7, Total: "1.50"}); err != nil {
				t.Fatal(err)
			}
			if err := first.commit(); err != nil {
				t.Fatal(err)
			}
			second := use(t, url)
			if won, err := second.claim("e-1", time.Hour); won || err != nil {
				t.Errorf("second claim: %t, %v", won, err)
			}
			var got order
			found, err := second.result("e-1", &got)
			if diff := cmp.Diff(order{ID: 7, Total: "1.50"}, got); !found || err != nil || diff != "" {
				t.Errorf("result: %t, %v (-want +got):\n%s", found, err, diff)
			}
			if found, err := second.result("e-2", &got); found || err != nil {
				t.Errorf("result of an event that nobody claimed: %t, %v", found, err)
			}
			if err := second.complete("e-2", 1); !errors.Is(err, outbox.ErrNoClaim) {
				t.Errorf("complete without a claim: %v", err)
			}
			if err := second.commit(); err != nil {
				t.Fatal(err)
			}
			exec(t, connect(t, url), `update outbox.claims set expires_at = now()`)
			third := use(t, url)
			if found, err := third.result("e-1", &got); found || err != nil {
				t.Errorf("result of an expired claim: %t, %v", found, err)
			}
			if won, err := third.claim("e-1", time.Hour); !won || err != nil {
				t.Errorf("claim of an expired one: %t, %v", won, err)
			}
			if found, err := third.result("e-1", &got); found || err != nil {
				t.Errorf("result of a claim that was taken anew: %t, %v", found, err)
			}
		})
	}
}

// Consumers do not know each other's claims.
func TestClaim_IsOfOneConsumer(t *testing.T) {
	t.Parallel()
	tx := begin(t, connect(t, pgtest.Migrated(t)))
	for _, consumer := range []string{"mailer", "ledger"} {
		if won, err := outbox.Claim(t.Context(), tx, consumer, "e-1", time.Hour); !won || err != nil {
			t.Errorf("%s: %t, %v", consumer, won, err)
		}
	}
}

// Whoever comes second waits for the first: a claim that is rolled back never was.
func TestClaim_WaitsForAnOpenOne(t *testing.T) {
	t.Parallel()
	for _, committed := range []bool{true, false} {
		t.Run(fmt.Sprintf("committed %t", committed), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			url := pgtest.Migrated(t)
			first, second := begin(t, connect(t, url)), begin(t, connect(t, url))
			if won, err := outbox.Claim(ctx, first, "c", "e", time.Hour); !won || err != nil {
				t.Fatalf("%t, %v", won, err)
			}
			type answer struct {
				won bool
				err error
			}
			done := make(chan answer, 1)
			waiting := second.Conn().PgConn().PID()
			go func() {
				won, err := outbox.Claim(ctx, second, "c", "e", time.Hour)
				done <- answer{won, err}
			}()
			pgtest.Eventually(t, patience, func() error {
				var event string
				err := first.QueryRow(ctx, "select coalesce(wait_event_type, '') from pg_stat_activity where pid = $1", waiting).Scan(&event)
				if err == nil && event != "Lock" {
					err = fmt.Errorf("waits for %q", event)
				}
				return err
			})
			end := first.Rollback
			if committed {
				end = first.Commit
			}
			if err := end(ctx); err != nil {
				t.Fatal(err)
			}
			if got, want := <-done, (answer{won: !committed}); got != want {
				t.Errorf("the second got %+v, want %+v", got, want)
			}
		})
	}
}

func TestClaim_AfterTheSnapshotIsASerializationFailure(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := pgtest.Migrated(t)
	late, err := connect(t, url).BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Exec(ctx, "select 1 from outbox.claims"); err != nil {
		t.Fatal(err)
	}
	early := begin(t, connect(t, url))
	if won, err := outbox.Claim(ctx, early, "c", "e", time.Hour); !won || err != nil {
		t.Fatalf("%t, %v", won, err)
	}
	commit(t, early)
	_, err = outbox.Claim(ctx, late, "c", "e", time.Hour)
	if refused := new(pgconn.PgError); !errors.As(err, &refused) || refused.Code != "40001" {
		t.Errorf("got %v, want SQLSTATE 40001", err)
	}
}

// What breaks a limit is refused before the server sees it, and the transaction
// is as it was.
func TestClaim_Limits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	tx := begin(t, connect(t, pgtest.Migrated(t)))
	for _, c := range []struct {
		consumer, event string
		retention       time.Duration
		field           string
	}{
		{"", "e", time.Hour, "consumer"},
		{strings.Repeat("c", 256), "e", time.Hour, "consumer"},
		{"c\x00", "e", time.Hour, "consumer"},
		{"c", "", time.Hour, "event_id"},
		{"c", strings.Repeat("e", 1025), time.Hour, "event_id"},
		{"c", "\xff", time.Hour, "event_id"},
		{"c", "e", 0, "retention"},
		{"c", "e", -time.Second, "retention"},
	} {
		_, err := outbox.Claim(ctx, tx, c.consumer, c.event, c.retention)
		if limit, ok := errors.AsType[*outbox.LimitError](err); !ok || limit.Field != c.field {
			t.Errorf("%.10q %.10q %s: %v, want a limit of %s", c.consumer, c.event, c.retention, err, c.field)
		}
	}
	if won, err := outbox.Claim(ctx, tx, strings.Repeat("c", 255), strings.Repeat("e", 1024), time.Hour); !won || err != nil {
		t.Errorf("the largest: %t, %v", won, err)
	}
	if err := outbox.Complete(ctx, tx, "c", "e", make(chan int)); err == nil {
		t.Error("a result that cannot be encoded was stored")
	}
}

func TestClaim_AnotherSchema(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Database(t))
	const name = `Sales "1"`
	if _, err := schema.Migrate(t.Context(), conn.Config(), schema.Config{Schema: name, Publication: "sales"}, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	sales := outbox.New(name)
	tx := begin(t, conn)
	if won, err := sales.Claim(t.Context(), tx, "c", "e", time.Hour); !won || err != nil {
		t.Fatalf("%t, %v", won, err)
	}
	if err := sales.Complete(t.Context(), tx, "c", "e", []int{1}); err != nil {
		t.Error(err)
	}
	var got []int
	if found, err := sales.Result(t.Context(), tx, "c", "e", &got); !found || err != nil || len(got) != 1 {
		t.Errorf("result %v, %t, %v", got, found, err)
	}
}

// 32 workers get the same events, in their own order, some die after the change
// and before their commit: each event changes the business exactly once.
func TestClaim_ExactlyOneChangePerEvent(t *testing.T) {
	t.Parallel()
	const workers, events = 32, 400
	url := pgtest.Migrated(t)
	conn := connect(t, url)
	exec(t, conn, `create table changes (event text not null, worker int not null)`)
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	db := openSQL(t, url)
	var group errgroup.Group
	for n := range workers {
		random := rand.New(rand.NewPCG(seed, uint64(n)))
		group.Go(func() error {
			for _, i := range random.Perm(events) {
				for attempt := 0; ; attempt++ {
					died, err := handleOnce(db, fmt.Sprint("e-", i), n, attempt < 3 && random.IntN(10) == 0)
					if err != nil {
						return err
					}
					if !died {
						break
					}
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	var rows, distinct, claimed int
	err := conn.QueryRow(t.Context(), `select count(*), count(distinct event), (select count(*) from outbox.claims) from changes`).Scan(&rows, &distinct, &claimed)
	if err != nil || rows != events || distinct != events || claimed != events {
		t.Errorf("%d changes of %d events, %d claims, %v, want %d of each", rows, distinct, claimed, err, events)
	}
}

// handleOnce handles an event, unless somebody has, and dies before its commit
// if it has to.
func handleOnce(db *sql.DB, event string, worker int, dies bool) (died bool, err error) {
	ctx := context.Background()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	won, err := outbox.ClaimSQL(ctx, tx, "worker", event, time.Hour)
	if err != nil || !won {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, `insert into changes values ($1, $2)`, event, worker); err != nil || dies {
		return dies, err
	}
	return false, tx.Commit()
}
