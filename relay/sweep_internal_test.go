package relay

import (
	"context"
	"encoding/json"
	"maps"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// blocks is how many blocks of tables and indexes a statement looks at.
func blocks(t *testing.T, conn *pgx.Conn, sql string, args ...any) int {
	t.Helper()
	var text string
	if err := conn.QueryRow(t.Context(), "explain (analyze, buffers, format json) "+sql, args...).Scan(&text); err != nil {
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

// A page of the sweep reads its part of the keys from end to end, whatever the
// statistics say: a look-up for each of its messages would be ten times as much, and
// the other parts are left alone.
func TestSweeper_PageReadsItsPartOfTheKeys(t *testing.T) {
	t.Parallel()
	base, err := pgx.ParseConfig(pgtest.Migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(base.RuntimeParams, settings)
	conn, err := pgx.ConnectConfig(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`insert into outbox.messages (key, queue, payload) select 'k' || i, 'q', '{}' from generate_series(1, 60000) i`)
	exec(`insert into outbox.dispatched (message_id, attempts) select id, 1 from outbox.messages where id % 100 <> 0`)
	exec(`insert into outbox.deferred (message_id, queue, reason) select id, 'q', 'held' from outbox.messages where id % 200 = 0`)
	sql := newStatements("outbox")
	for _, state := range []struct{ name, sql string }{
		{"never analyzed", `select`},
		{"analyzed", `analyze outbox.messages, outbox.dispatched, outbox.deferred`},
		{"vacuumed", `vacuum outbox.messages, outbox.dispatched, outbox.deferred`},
	} {
		exec(state.sql)
		if got, most := blocks(t, conn, sql.candidates, 20_000, sweepPage), 3000; got > most {
			t.Errorf("%s: %d blocks for a page, want at most %d", state.name, got, most)
		}
		if got := blocks(t, conn, sql.candidates, 60_000, sweepPage); got > 20 {
			t.Errorf("%s: %d blocks to find nothing new", state.name, got)
		}
	}
	var open []int64
	var last int64
	var full bool
	if err := conn.QueryRow(t.Context(), sql.candidates, 20_000, sweepPage).Scan(&open, &last, &full); err != nil {
		t.Fatal(err)
	}
	if len(open) != 100 || open[0] != 20_100 || last != 40_000 || !full {
		t.Errorf("%d open ones from %d on, the last message is %d, full %v", len(open), open[0], last, full)
	}
}
