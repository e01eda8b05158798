package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
	"golang.org/x/time/rate"

	"github.com/outbox-relay/outbox-relay/outbox"
)

const (
	tills            = 6
	customersPerTill = 4
	// salesPerSecond is what all tills together try to sell: enough to be a
	// load, and no matter for two cores with other things to do.
	salesPerSecond = 250

	// Of all sales, these shares go wrong or are written again.
	rollbackShare = 0.10
	repeatShare   = 0.05
	// letterShare of the orders are confirmed by a letter too.
	letterShare = 0.30
)

var items = []string{"lamp", "kettle", "chair", "rug", "mirror", "clock"}

// order is one sale.
type order struct {
	id, customer, item string
	quantity, cents    int
	letter             bool
}

// till sells to customers of its own, one sale after the other. So the order in
// which it enters sales in the book is the order of their commits.
type till struct {
	number int
	conn   *pgx.Conn
	dice   *rand.Rand
	book   *book
	orders int
	last   *order // the last one that was committed
}

// runTill sells until open ends. A sale that has begun is brought to its end.
func runTill(ctx, open context.Context, number int, seed uint64, databaseURL string, pace *rate.Limiter, b *book) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	t := &till{number: number, conn: conn, dice: rand.New(rand.NewPCG(seed, uint64(number))), book: b}
	for pace.Wait(open) == nil {
		if err := t.sell(ctx); err != nil {
			return fmt.Errorf("till %d: %w", number, err)
		}
	}
	return nil
}

// sell makes one sale: usually a good one, sometimes one that the customer
// breaks off, or one whose form is sent twice.
func (t *till) sell(ctx context.Context) error {
	switch chance := t.dice.Float64(); {
	case chance < rollbackShare:
		return t.breakOff(ctx, t.nextOrder())
	case chance < rollbackShare+repeatShare && t.last != nil:
		return t.repeat(ctx, *t.last)
	default:
		return t.place(ctx, t.nextOrder())
	}
}

func (t *till) nextOrder() order {
	t.orders++
	return order{
		id:       fmt.Sprintf("%d-%d", t.number, t.orders),
		customer: fmt.Sprintf("customer-%d-%d", t.number, t.dice.IntN(customersPerTill)),
		item:     items[t.dice.IntN(len(items))],
		quantity: 1 + t.dice.IntN(5),
		cents:    100 + t.dice.IntN(20_000),
		letter:   t.dice.Float64() < letterShare,
	}
}

// place writes an order and what the world shall hear of it, in one transaction.
func (t *till) place(ctx context.Context, o order) error {
	tx, err := t.conn.Begin(ctx)
	if err != nil {
		return err
	}
	if err := o.write(ctx, tx); err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	t.last = &o
	t.book.enterCommit(o.messages())
	return nil
}

// breakOff does the same and then rolls it back: nobody may ever hear of it.
func (t *till) breakOff(ctx context.Context, o order) error {
	tx, err := t.conn.Begin(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(o.write(ctx, tx), tx.Rollback(ctx)); err != nil {
		return err
	}
	t.book.enterRollback()
	return nil
}

// repeat writes an order that is there already: nothing may come of it.
func (t *till) repeat(ctx context.Context, o order) error {
	tx, err := t.conn.Begin(ctx)
	if err != nil {
		return err
	}
	err = o.write(ctx, tx)
	if err == nil {
		err = fmt.Errorf("order %s: its keys were taken a second time", o.id)
	}
	if !errors.Is(err, outbox.ErrDuplicateKey) {
		return errors.Join(err, tx.Rollback(ctx))
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	t.book.enterRepeat(len(o.messages()))
	return nil
}

// write is the business and its messages, in the transaction of the caller.
func (o order) write(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `
		insert into shop.orders (id, customer, item, quantity, cents) values ($1, $2, $3, $4, $5)
		on conflict (id) do nothing`, o.id, o.customer, o.item, o.quantity, o.cents)
	if err != nil {
		return err
	}
	var messages []outbox.Message
	for _, m := range o.messages() {
		messages = append(messages, outbox.Message{
			Key: m.key, Queue: m.queue, OrderingKey: m.orderingKey,
			Payload: map[string]any{"event": m.key, "customer": o.customer, "item": o.item, "quantity": o.quantity, "cents": o.cents},
		})
	}
	_, err = outbox.Enqueue(ctx, tx, messages...)
	return err
}

// messages are what the world shall hear of an order.
func (o order) messages() []message {
	messages := []message{{key: "order-" + o.id + "-placed", queue: ordersQueue, orderingKey: o.customer}}
	if o.letter {
		messages = append(messages, message{key: "order-" + o.id + "-letter", queue: lettersQueue})
	}
	return messages
}
