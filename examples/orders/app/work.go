package app

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

// WorkerName is the name under which the worker claims what it fulfils.
const WorkerName = "worker"

// Worker fulfils orders that come over the queue.
func Worker(db *pgxpool.Pool, queue consumer.Queue, config consumer.LoopConfig) (*consumer.Loop, error) {
	worker := &consumer.Consumer{Name: WorkerName, DB: db, Handler: fulfil}
	return consumer.NewLoop(worker, queue, consumer.Plain(consumer.Field("event_id")), config)
}

// pick is what the warehouse gets.
type pick struct {
	EventID  string `json:"event_id"`
	Order    string `json:"order"`
	Article  string `json:"article"`
	Quantity int    `json:"quantity"`
}

// fulfil takes the goods out of stock and has them picked, once for each order. A
// worker that dies anywhere in here has done nothing; one that dies after the
// commit has done all of it, and the next delivery is a repeat.
func fulfil(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
	var f fulfilment
	if err := json.Unmarshal(m.Data, &f); err != nil {
		return consumer.Permanent(err)
	}
	shipment, err := tx.Exec(ctx, `insert into shipments (order_id) values ($1) on conflict do nothing`, f.Order)
	if err != nil || shipment.RowsAffected() == 0 {
		return err // it has its shipment, from before the claim expired
	}
	p := pick{EventID: "pick-" + f.Order, Order: f.Order}
	// Too little in stock violates the table's constraint: an error, and the
	// message comes again, until it is a dead letter that somebody looks at.
	err = tx.QueryRow(ctx, `update stock set available = available - o.quantity
		from orders o where o.id = $1 and stock.article = o.article
		returning o.article, o.quantity`, f.Order).Scan(&p.Article, &p.Quantity)
	if err != nil {
		return err
	}
	_, err = outbox.Enqueue(ctx, tx, outbox.Message{
		Key: p.EventID, Queue: Warehouse, OrderingKey: p.Article, Payload: p,
	})
	return err
}
