package pgtext_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

func TestConnectError(t *testing.T) {
	t.Parallel()
	cause := errors.New("no:\n\tdb: refused")
	for want, err := range map[string]error{
		"connect: no: db: refused":          &pgtext.ConnectError{Err: cause},
		"connect database: no: db: refused": &pgtext.ConnectError{What: "database", Err: cause},
	} {
		if err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("got %q, want %q, which leads to its cause", err, want)
		}
	}
}

func TestSQLState(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"":      errors.New("connection reset"),
		"57P01": fmt.Errorf("read: %w", &pgconn.PgError{Code: "57P01"}),
	} {
		if got := pgtext.SQLState(err); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
}
