package demo

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

const (
	// batch is how many messages a consumer leases at once.
	batch = 20
	// lease is how long the queue waits for an acknowledgement. What is not
	// acknowledged comes again after it.
	lease = 2 * time.Second
	// forgetShare of the messages are handled and not acknowledged, as if the
	// consumer had died in between.
	forgetShare = 0.03
	// idle is the pause after an empty answer.
	idle = 50 * time.Millisecond
)

// tally counts what all consumers did. It is safe for concurrent use.
type tally struct {
	handled, suppressed atomic.Int64
}

// consumer takes messages from one queue and handles each event once.
type consumer struct {
	queue *queueClient
	name  string // of the queue
	conn  *pgx.Conn
	dice  *rand.Rand
	tally *tally
}

// runConsumer consumes until ctx ends, which is not an error.
func runConsumer(ctx context.Context, queue *queueClient, name string, dice *rand.Rand, databaseURL string, t *tally) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	c := &consumer{queue: queue, name: name, conn: conn, dice: dice, tally: t}
	for ctx.Err() == nil {
		if err := c.round(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// round leases some messages and handles them.
func (c *consumer) round(ctx context.Context) error {
	deliveries, err := c.queue.consume(ctx, c.name, batch, lease)
	if err != nil {
		return err
	}
	if len(deliveries) == 0 {
		return pause(ctx, idle)
	}
	for _, d := range deliveries {
		if err := c.handle(ctx, d.Payload.Event); err != nil {
			return err
		}
		if c.dice.Float64() < forgetShare {
			continue
		}
		if err := c.queue.ack(ctx, c.name, d.ID); err != nil {
			return err
		}
	}
	return nil
}

// handle claims the event and does the work in one transaction. Who comes
// second gets no claim and does nothing.
func (c *consumer) handle(ctx context.Context, event string) error {
	tx, err := c.conn.Begin(ctx)
	if err != nil {
		return err
	}
	var first bool
	err = tx.QueryRow(ctx, `select outbox.claim($1, $2)`, consumerName, event).Scan(&first)
	if err == nil && first {
		_, err = tx.Exec(ctx, `insert into shop.handled (event) values ($1)`, event)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if first {
		c.tally.handled.Add(1)
	} else {
		c.tally.suppressed.Add(1)
	}
	return nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	if !waits.Sleep(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}
