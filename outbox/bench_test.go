package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// BenchmarkEnqueue stands next to what the same rows cost without this package:
// a bare INSERT, and for many rows one INSERT from arrays. Each operation is a
// transaction's worth of statements inside one long transaction, so that the
// commit does not hide the difference.
func BenchmarkEnqueue(b *testing.B) {
	payload := json.RawMessage(`{"order": 1041, "text": "` + strings.Repeat("x", 370) + `"}`)
	messages := func(op, n int) []outbox.Message {
		batch := make([]outbox.Message, n)
		for i := range batch {
			batch[i] = outbox.Message{Key: fmt.Sprintf("k-%d-%d", op, i), Queue: "orders", OrderingKey: "order-1041", Payload: payload}
		}
		return batch
	}
	enqueue := func(ctx context.Context, tx pgx.Tx, batch []outbox.Message) error {
		_, err := outbox.Enqueue(ctx, tx, batch...)
		return err
	}
	bare := func(ctx context.Context, tx pgx.Tx, batch []outbox.Message) error {
		m := batch[0]
		_, err := tx.Exec(ctx, `insert into outbox.messages (key, queue, ordering_key, payload) values ($1, $2, $3, $4)`,
			m.Key, m.Queue, m.OrderingKey, m.Payload)
		return err
	}
	arrays := func(ctx context.Context, tx pgx.Tx, batch []outbox.Message) error {
		var keys, queues, orderingKeys []string
		var payloads []json.RawMessage
		for _, m := range batch {
			keys, queues, orderingKeys = append(keys, m.Key), append(queues, m.Queue), append(orderingKeys, m.OrderingKey)
			payloads = append(payloads, m.Payload.(json.RawMessage))
		}
		_, err := tx.Exec(ctx, `insert into outbox.messages (key, queue, ordering_key, payload)
			select * from unnest($1::text[], $2::text[], $3::text[], $4::jsonb[])`, keys, queues, orderingKeys, payloads)
		return err
	}
	for _, way := range []struct {
		name string
		n    int
		do   func(context.Context, pgx.Tx, []outbox.Message) error
	}{
		{"one/enqueue", 1, enqueue},
		{"one/bare", 1, bare},
		{"hundred/enqueue", 100, enqueue},
		{"hundred/arrays", 100, arrays},
	} {
		b.Run(way.name, func(b *testing.B) {
			ctx := b.Context()
			tx := begin(b, connect(b, pgtest.Migrated(b)))
			b.ReportAllocs()
			for op := 0; b.Loop(); op++ {
				if err := way.do(ctx, tx, messages(op, way.n)); err != nil {
					b.Fatal(err)
				}
			}
			if err := tx.Rollback(ctx); err != nil {
				b.Fatal(err)
			}
		})
	}
}
