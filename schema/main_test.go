package schema_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/schema"
)

func TestMain(m *testing.M) {
	pgtest.Main(m, func() error { return goleak.Find() })
}

// standard are the names of everything unless a test is about names.
var standard = schema.Config{Schema: schema.DefaultSchema, Publication: schema.DefaultPublication}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	return connectConfig(t, parse(t, url))
}

func connectConfig(t *testing.T, config *pgx.ConnConfig) *pgx.Conn {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func parse(t *testing.T, url string) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func query[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var value T
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// refused is the server's error, or an empty one.
func refused(err error) *pgconn.PgError {
	if refused := new(pgconn.PgError); errors.As(err, &refused) {
		return refused
	}
	return new(pgconn.PgError)
}

func migrate(t *testing.T, url string, cfg schema.Config) []schema.Migration {
	t.Helper()
	applied, err := schema.Migrate(t.Context(), parse(t, url), cfg, zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

func printed(t *testing.T, cfg schema.Config) string {
	t.Helper()
	var sql strings.Builder
	if err := schema.Print(&sql, cfg); err != nil {
		t.Fatal(err)
	}
	return sql.String()
}
