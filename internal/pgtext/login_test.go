package pgtext_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// The code is that of a pg_hba.conf that refuses as well.
func TestLetLogIn(t *testing.T) {
	t.Parallel()
	for routine, want := range map[string]bool{"InitializeSessionUserId": true, "ClientAuthentication": false} {
		err := fmt.Errorf("connect: %w", &pgconn.PgError{Code: "28000", Routine: routine})
		hint := pgtext.LetLogIn(err, `"r"`)
		if pgtext.NoLogin(err) != want || strings.Contains(hint, `alter role "r" login`) != want {
			t.Errorf("%s: %q", routine, hint)
		}
	}
	if hint := pgtext.LetLogIn(&pgconn.PgError{Code: "28P01", Routine: "InitializeSessionUserId"}, "r"); hint != "" {
		t.Errorf("a wrong password: %q", hint)
	}
}
