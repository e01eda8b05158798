package pgtext_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

func TestFunction(t *testing.T) {
	t.Parallel()
	where := "SQL statement \"insert into audit.notes values (4711)\"\nPL/pgSQL function audit.note() line 3 at SQL statement\nCOPY dispatched, line 1"
	err := fmt.Errorf("write: %w", &pgconn.PgError{Code: "55P03", Where: where})
	if got, want := pgtext.Function(err), "function audit.note() line 3"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, err := range []error{errors.New("closed"), &pgconn.PgError{Code: "55P03"}, &pgconn.PgError{Where: "COPY dispatched, line 1"}} {
		if got := pgtext.Function(err); got != "" {
			t.Errorf("%v: %q", err, got)
		}
	}
}
