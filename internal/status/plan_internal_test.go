package status

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// blocks is how many blocks of tables and indexes a query looks at.
func blocks(t *testing.T, tx pgx.Tx, sql string) int {
	t.Helper()
	var text string
	if err := tx.QueryRow(t.Context(), "explain (analyze, buffers, format json) "+sql, int64(Bound)).Scan(&text); err != nil {
		t.Fatal(err)
	}
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// A backlog leaves a large table behind, which is not read as a whole every time
// that somebody asks for figures.
func TestRead_AnEmptyTableIsNotRead(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.Migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range []string{
		`insert into outbox.deferred (message_id, queue, reason, last_error) select i, 'orders', 'held', repeat('x', 200) from generate_series(1, 30000) i`,
		`insert into outbox.dead_letters (message_id, attempts, reason) select i, 1, 'refused' from generate_series(1, 30000) i`,
		`delete from outbox.deferred where message_id < 29999`,
		`delete from outbox.dead_letters where message_id < 29999`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	// A vacuum leaves what a snapshot of somebody else may still see, be it that of
	// an analyze or of a session that begins.
	pgtest.Eventually(t, time.Minute, func() error {
		for _, sql := range []string{`vacuum outbox.deferred`, `vacuum (truncate off) outbox.dead_letters`} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				return err
			}
		}
		return Snapshot(t.Context(), conn, func(tx pgx.Tx) error {
			for _, sql := range []string{sqlDeferred, sqlReasons, sqlOldestUnknown, sqlDeadLetters, sqlDeadLetterReasons} {
				if got := blocks(t, tx, sql); got > 50 {
					return fmt.Errorf("%d blocks for two rows, want at most 50:%s", got, sql)
				}
			}
			return nil
		})
	})
}
