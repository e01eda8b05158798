package pgtest

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Connect is a connection that is closed at the test's end.
func Connect(t TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url) // lasts longer than the test's context
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
