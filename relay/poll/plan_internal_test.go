package poll

import (
	"context"
	"encoding/json"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// plan is what EXPLAIN says about one statement.
type plan struct {
	Plan struct {
		Hit  int `json:"Shared Hit Blocks"`
		Read int `json:"Shared Read Blocks"`
	}
}

var wholeTable = regexp.MustCompile(`"Node Type": "Seq Scan"[^}]*?"Relation Name": "(\w+)"`)

// explain runs a statement as a session would. It returns the number of blocks
// that were looked at, and the tables that were read as a whole.
func explain(t *testing.T, conn *pgx.Conn, sql string, args ...any) (blocks int, whole []string) {
	t.Helper()
	var text string
	if err := conn.QueryRow(t.Context(), "explain (analyze, buffers, format json) "+sql, args...).Scan(&text); err != nil {
		t.Fatal(err)
	}
	var plans []plan
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	for _, match := range wholeTable.FindAllStringSubmatch(text, -1) {
		whole = append(whole, match[1])
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read, whole
}

// What a look costs does not depend on what is in the table: a hundred thousand
// messages that were dispatched long ago are not looked at.
func TestPage_LooksAtWhatIsNew(t *testing.T) {
	t.Parallel()
	base, err := pgx.ParseConfig(pgtest.Migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), leaseConfig(base, 15*time.Second))
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
	sql := newStatements("outbox")
	exec(`insert into outbox.queues (queue, ordering) values ('fifo', 'queue')`)
	for _, state := range []struct{ name, sql string }{
		{"never analyzed", `select`},
		{"analyzed", `analyze outbox.messages, outbox.dispatched`},
		{"vacuumed", `vacuum outbox.messages, outbox.dispatched`},
	} {
		if state.name == "never analyzed" {
			exec(`insert into outbox.messages (key, queue, payload) select 'm' || i, 'orders', '{}' from generate_series(1, 100000) i`)
			exec(`insert into outbox.dispatched (message_id, attempts) select id, 1 from outbox.messages`)
			exec(`insert into outbox.messages (key, queue, payload, ordering_key) select 'n' || i, 'orders', '{}', nullif(i % 2, 0) from generate_series(1, 100) i`)
		}
		exec(state.sql)
		for _, free := range []bool{false, true} {
			blocks, whole := explain(t, conn, sql.page, 100_000, 100_100, pageSize, free)
			if most := 2000; blocks > most || whole != nil { // a few for each of the 100 new ones
				t.Errorf("%s: %d blocks for 100 messages, want at most %d, and as a whole %v", state.name, blocks, most, whole)
			}
			if blocks, whole := explain(t, conn, sql.page, 100_100, 100_100, pageSize, free); blocks > 10 || whole != nil {
				t.Errorf("%s: %d blocks to find nothing new, and as a whole %v", state.name, blocks, whole)
			}
		}
		ids := []int64{100_001, 100_050, 100_100}
		if blocks, whole := explain(t, conn, sql.rows, ids); blocks > 30 || whole != nil {
			t.Errorf("%s: %d blocks for 3 messages, and as a whole %v", state.name, blocks, whole)
		}
	}
}
