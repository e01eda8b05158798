package relay_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay"
)

// A database whose sessions speak another encoding, by a setting or since it is
// stored in that: a message has the same bytes from the table as from the WAL, and
// is marked.
func TestPromise2_BytesDoNotFollowTheEncoding(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const payload = `{"name": "José €"}`
	b.exec(fmt.Sprintf(`alter database %s set client_encoding = 'LATIN1'`, pgx.Identifier{b.conn.Config().Database}.Sanitize()))
	b.exec(`insert into outbox.relays (slot, reconciled_at) values ('s', now())`)
	b.exec(`insert into outbox.messages (key, queue, payload) values ('k1', 'q', $1)`, payload)
	b.exec(`insert into outbox.deferred (message_id, queue, reason) select id, 'q', 'recovered' from outbox.messages`)
	sent := make(chan string, 10)
	b.start(publisherFunc(func(_ context.Context, row *outbox.Row) (relay.Receipt, error) {
		sent <- row.Payload
		return relay.Receipt{QueueMessageID: "€"}, nil
	}))
	b.awaitCount(1, countDispatched+` where queue_message_id = '€'`)
	b.awaitCount(0, `select count(*) from outbox.deferred`)
	if got := <-sent; got != payload {
		t.Errorf("sent %s, want %s", got, payload)
	}
}
