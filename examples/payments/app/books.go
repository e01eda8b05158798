package app

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

// BooksConsumer is the name under which the books claim an event: another one than
// that of the invoices, because both handle the same events.
const BooksConsumer = "books"

// Books books the payments that come over the queue, one at a time: its order is
// that of the queue. Several may run at once, on several machines.
func Books(db *pgxpool.Pool, queue consumer.Queue, config consumer.LoopConfig) (*consumer.Loop, error) {
	books := &consumer.Consumer{Name: BooksConsumer, DB: db, Handler: book}
	config.Concurrency = 1
	// The id is the event's, from the payload. The queue's message_id would not
	// do: a message that was published twice has two.
	return consumer.NewLoop(books, queue, consumer.Plain(consumer.Field("event_id")), config)
}

// book trusts the claim: nothing else keeps a second booking of an event away.
func book(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
	var p payment
	if err := json.Unmarshal(m.Data, &p); err != nil {
		return consumer.Permanent(err)
	}
	_, err := tx.Exec(ctx, `insert into bookings (invoice, amount) values ($1, $2)`, p.Invoice, p.Amount)
	return err
}
