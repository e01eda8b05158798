package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// marker writes outcomes as the relay does: the guard, then the rows by COPY.
type marker struct {
	conn *pgx.Conn
	id   int64
}

func (m *marker) mark(t *testing.T, batches, size int, queueMessageID *string) {
	t.Helper()
	for range batches {
		exec(t, m.conn, "begin")
		exec(t, m.conn, "select outbox.record_position('s', 1, $1::text::pg_lsn)", fmt.Sprintf("0/%X", m.id+1))
		rows := make([][]any, size)
		for i := range rows {
			m.id++
			rows[i] = []any{m.id, queueMessageID, 1, false}
		}
		columns := []string{"message_id", "queue_message_id", "attempts", "possible_duplicate"}
		_, err := m.conn.CopyFrom(t.Context(), pgx.Identifier{"outbox", "dispatched"}, columns, pgx.CopyFromRows(rows))
		if err != nil {
			t.Fatal(err)
		}
		exec(t, m.conn, "commit")
	}
}

// A mark costs at most 100 bytes of WAL, besides the queue's own id: 64 for the
// primary key, the rest for the row and its share of the transaction. And
// however many there are, the row of the slot stays on its page and leaves its
// index alone.
func TestMarks_CostLittle(t *testing.T) {
	t.Parallel()
	// WAL and the oldest snapshot are the cluster's, so nobody else may use it.
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{"autovacuum": "off", "checkpoint_timeout": "1h"}})
	m := &marker{conn: connect(t, cluster.Migrated(t))}
	exec(t, m.conn, `insert into outbox.relays (slot, epoch, holder, version) values ('s', 1, 'host:123', '1.2.3')`)
	m.mark(t, 1, 1000, nil) // the first writes to a page after a checkpoint are whole pages

	const size, batches = 500, 20
	for _, id := range []*string{nil, new("msg_" + strings.Repeat("x", 26))} {
		before := query[string](t, m.conn, "select pg_current_wal_insert_lsn()::text")
		m.mark(t, batches, size, id)
		bytes := query[float64](t, m.conn, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::text::pg_lsn)::float8", before) / (size * batches)
		most := 100.0
		if id != nil {
			most += float64(len(*id) + 1)
		}
		t.Logf("%.1f bytes a mark, at most %.0f", bytes, most)
		if bytes > most {
			t.Errorf("a mark costs %.1f bytes of WAL, want at most %.0f", bytes, most)
		}
	}

	pages := func() string {
		return query[string](t, m.conn, "select pg_relation_size('outbox.relays') / 8192 || ' ' || pg_relation_size('outbox.relays_pkey') / 8192")
	}
	before := pages()
	m.mark(t, 1000, 1, nil)
	if after := pages(); after != before {
		t.Errorf("pages of the relays and their index: %s before, %s after", before, after)
	}
}
