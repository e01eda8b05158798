package consumer_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

func TestMain(m *testing.M) {
	if os.Getenv(childDatabase) != "" {
		if err := consumeAsChild(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	pgtest.Main(m, func() error { return goleak.Find() })
}

// patience bounds what a test waits for on a busy machine; it only ends broken
// tests.
const patience = time.Minute

// ledger is a database with claims and with what handlers did.
type ledger struct {
	t    *testing.T
	pool *pgxpool.Pool
}

func newLedger(t *testing.T) ledger {
	t.Helper()
	return openLedger(t, pgtest.Migrated(t))
}

func openLedger(t *testing.T, url string) ledger {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 12
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	l := ledger{t, pool}
	l.exec("create table if not exists booked (event text not null)")
	return l
}

func (l ledger) exec(statement string, args ...any) {
	l.t.Helper()
	if _, err := l.pool.Exec(context.Background(), statement, args...); err != nil {
		l.t.Fatalf("%s: %v", statement, err)
	}
}

// counts are the rows that handlers wrote and the claims that there are.
func (l ledger) counts() (booked, claims int) {
	l.t.Helper()
	const query = "select (select count(*) from booked), (select count(*) from outbox.claims)"
	// The pool may hold a connection to a server that a test has killed.
	pgtest.Eventually(l.t, patience, func() error {
		return l.pool.QueryRow(context.Background(), query).Scan(&booked, &claims)
	})
	return booked, claims
}

func (l ledger) want(booked, claims int) {
	l.t.Helper()
	if b, c := l.counts(); b != booked || c != claims {
		l.t.Errorf("%d booked and %d claims, want %d and %d", b, c, booked, claims)
	}
}

// eventually waits until so many events are booked.
func (l ledger) eventually(booked int) {
	l.t.Helper()
	pgtest.Eventually(l.t, patience, func() error {
		if b, _ := l.counts(); b != booked {
			return fmt.Errorf("%d booked, want %d", b, booked)
		}
		return nil
	})
}

// once is a consumer with a handler.
func (l ledger) once(handler consumer.Handler) *consumer.Consumer {
	return &consumer.Consumer{Name: "books", DB: l.pool, Handler: handler}
}

// book is the business change of a test: without a unique index, so that a second
// one would show.
func book(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
	_, err := tx.Exec(ctx, "insert into booked values ($1)", m.ID)
	return err
}
