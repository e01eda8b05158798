package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

// InvoicesConsumer is the name under which events of Stripe are claimed, by
// whichever way they come.
const InvoicesConsumer = "invoices"

// invoices changes invoices. Its claims are kept for the 30 days of
// [consumer.DefaultRetention]: as long as Stripe can be asked for its events.
func invoices(db *pgxpool.Pool) *consumer.Consumer {
	return &consumer.Consumer{Name: InvoicesConsumer, DB: db, Handler: settle}
}

// Webhooks takes events of Stripe as they happen. It trusts nobody who does not
// sign with one of the secrets.
func Webhooks(db *pgxpool.Pool, secrets consumer.Secrets, config consumer.ReceiverConfig) (http.Handler, error) {
	return consumer.NewReceiver(invoices(db), consumer.Stripe(secrets), config)
}

// Reconcile takes the events that were asked of Stripe's API, as its nightly run:
// a webhook that never came is made good, and all others are repeats. It goes on
// after an event that fails, and returns how many were news.
func Reconcile(ctx context.Context, db *pgxpool.Pool, events [][]byte) (news int, err error) {
	c := invoices(db)
	// They need no signature: we asked, over TLS. The same id is claimed as for
	// the webhook.
	read := consumer.Stripe(nil).Read
	var errs []error
	for _, event := range events {
		m, err := read(nil, event)
		outcome := consumer.Refused
		if err == nil {
			outcome, err = c.Handle(ctx, m)
		}
		if outcome == consumer.Handled {
			news++
		}
		errs = append(errs, err)
	}
	return news, errors.Join(errs...)
}

// statusAfter is what an event says about its invoice. Other types of events are
// claimed, and change nothing.
var statusAfter = map[string]string{"invoice.paid": "paid", "invoice.payment_failed": "failed"}

// payment is what the books get to know. EventID is what they claim.
type payment struct {
	EventID string `json:"event_id"`
	Invoice string `json:"invoice"`
	Amount  int64  `json:"amount"`
}

// settle changes the invoice and orders the booking, both in the transaction that
// claims the event: all three happen, or none.
func settle(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
	status, wanted := statusAfter[m.Type]
	if !wanted {
		return nil
	}
	var event struct {
		Data struct{ Object struct{ ID string } }
	}
	if err := json.Unmarshal(m.Data, &event); err != nil {
		return consumer.Permanent(err)
	}
	p := payment{EventID: m.ID, Invoice: event.Data.Object.ID}
	changed, err := change(ctx, tx, &p, status)
	if err != nil || !changed || status != "paid" {
		return err
	}
	// The key comes from the event, so that it is the same whoever writes it.
	_, err = outbox.Enqueue(ctx, tx, outbox.Message{
		Key: "book-" + p.EventID, Queue: Bookings, OrderingKey: p.Invoice, Payload: p,
	})
	return err
}

// change gives the invoice its status, unless it has been paid: events come in any
// order, and a failure that arrives after the payment is an old one.
func change(ctx context.Context, tx pgx.Tx, p *payment, status string) (changed bool, err error) {
	var before string
	// The lock makes two events of one invoice wait for each other.
	err = tx.QueryRow(ctx, `select status, amount from invoices where id = $1 for update`, p.Invoice).Scan(&before, &p.Amount)
	if errors.Is(err, pgx.ErrNoRows) {
		// Stripe can be faster than our own commit. Without claim and with an
		// error, it tries again later.
		return false, fmt.Errorf("invoice %q is not here yet", p.Invoice)
	}
	if err != nil || before == "paid" || before == status {
		return false, err
	}
	_, err = tx.Exec(ctx, `update invoices set status = $2, changes = changes + 1 where id = $1`, p.Invoice, status)
	return err == nil, err
}
