package outbox_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// connect opens a connection that ends with the test.
func connect(t pgtest.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func begin(t pgtest.TB, conn *pgx.Conn) pgx.Tx {
	t.Helper()
	tx, err := conn.Begin(context.Background())
	if err != nil {
		t.Fatalf("%v", err)
	}
	return tx
}

func commit(t pgtest.TB, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatalf("%v", err)
	}
}

func exec(t pgtest.TB, conn *pgx.Conn, statement string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// keys are the committed keys in the order of their ids.
func keys(t pgtest.TB, url string) []string {
	t.Helper()
	rows, err := connect(t, url).Query(context.Background(), "select key from outbox.messages order by id")
	if err != nil {
		t.Fatalf("%v", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%v", err)
	}
	return keys
}

func openSQL(t pgtest.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// message is a message that the outbox takes.
func message(key string) outbox.Message {
	return outbox.Message{Key: key, Queue: "orders", Payload: map[string]any{"n": 1}}
}
