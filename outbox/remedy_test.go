package outbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// Who has not set up his database is told how, by each function.
func TestErrors_TellWhatToDo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		url   func(pgtest.TB) string
		role  string
		state string
		want  string
	}{
		"not migrated": {pgtest.Database, "none", "42P01", "outbox-relay migrate up"},
		"no rights":    {pgtest.Migrated, "pg_monitor", "42501", "outbox-relay grants print"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, test.url(t))
			exec(t, conn, "set role "+test.role)
			for act, try := range map[string]func(context.Context, pgx.Tx) error{
				"enqueue": func(ctx context.Context, tx pgx.Tx) error {
					_, err := outbox.Enqueue(ctx, tx, message("k"))
					return err
				},
				"claim": func(ctx context.Context, tx pgx.Tx) error {
					_, err := outbox.Claim(ctx, tx, "c", "e", time.Hour)
					return err
				},
			} {
				tx := begin(t, conn)
				err := try(t.Context(), tx)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s: %v, want a word of %s", act, err, test.want)
				}
				if answer, ok := errors.AsType[*pgconn.PgError](err); act == "enqueue" && (!ok || answer.Code != test.state) {
					t.Errorf("%s: %v, want SQLSTATE %s", act, err, test.state)
				}
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
