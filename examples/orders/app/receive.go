package app

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

// ReceiverName is the name under which webhooks are claimed.
const ReceiverName = "receiver"

// Receipt is what a delivery is answered with, the same for all deliveries of an
// event.
type Receipt struct {
	Order   string `json:"order"`
	Receipt int64  `json:"receipt"`
}

// Receiver takes the webhooks of new orders.
func Receiver(db *pgxpool.Pool, secrets consumer.Secrets, config consumer.ReceiverConfig) (http.Handler, error) {
	config.AnswerResult = true
	return consumer.NewReceiver(&consumer.Consumer{Name: ReceiverName, DB: db, Handler: take}, consumer.Shopify(secrets), config)
}

// order is what we want to know of an order.
type order struct {
	ID    json.Number `json:"id"`
	Items []struct {
		Article  string `json:"sku"`
		Quantity int    `json:"quantity"`
	} `json:"line_items"`
}

// fulfilment is what the worker gets. EventID is what it claims.
type fulfilment struct {
	EventID string `json:"event_id"`
	Order   string `json:"order"`
}

// take keeps a new order and asks for its fulfilment, in the transaction that
// claims the event.
func take(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
	if m.Type != "orders/create" {
		return nil
	}
	var o order
	if err := json.Unmarshal(m.Data, &o); err != nil {
		return consumer.Permanent(err)
	}
	if o.ID == "" || len(o.Items) != 1 { // an example: one article for each order
		return consumer.Permanent(errors.New("want an id, and one line item"))
	}
	receipt, isNew, err := keep(ctx, tx, o)
	if err != nil {
		return err
	}
	if isNew {
		f := fulfilment{EventID: "fulfil-" + receipt.Order, Order: receipt.Order}
		if _, err := outbox.Enqueue(ctx, tx, outbox.Message{
			Key: f.EventID, Queue: Orders, OrderingKey: receipt.Order, Payload: f,
		}); err != nil {
			return err
		}
	}
	// A repeat is answered with this too, without coming here.
	return outbox.Complete(ctx, tx, ReceiverName, m.ID, receipt)
}

// keep writes an order, unless it is there. The claim has stopped most repeats
// before; this stops the one that comes after the claim has expired, and the one
// under another event id: Shopify signs the body, not the header with the id.
func keep(ctx context.Context, tx pgx.Tx, o order) (receipt Receipt, isNew bool, err error) {
	receipt.Order = o.ID.String()
	err = tx.QueryRow(ctx, `insert into orders (id, article, quantity) values ($1, $2, $3)
		on conflict (id) do nothing returning receipt`, receipt.Order, o.Items[0].Article, o.Items[0].Quantity).Scan(&receipt.Receipt)
	if !errors.Is(err, pgx.ErrNoRows) {
		return receipt, err == nil, err
	}
	err = tx.QueryRow(ctx, `select receipt from orders where id = $1`, receipt.Order).Scan(&receipt.Receipt)
	return receipt, false, err
}
