package pgtext_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

func TestCrowded(t *testing.T) {
	t.Parallel()
	crowded := fmt.Errorf("connect: %w", &pgconn.PgError{Code: "53300"})
	if hint := pgtext.Crowded(crowded, false); !strings.Contains(hint, "max_connections") {
		t.Errorf("the hint is %q", hint)
	}
	if hint := pgtext.Crowded(crowded, true); !strings.Contains(hint, "max_wal_senders") {
		t.Errorf("the hint for replication is %q", hint)
	}
	for _, other := range []error{errors.New("refused"), &pgconn.PgError{Code: "53200"}} {
		if hint := pgtext.Crowded(other, false); hint != "" {
			t.Errorf("%v: the hint is %q", other, hint)
		}
	}
}
