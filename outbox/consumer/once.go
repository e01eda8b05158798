package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// Handler does what an event is for, in the transaction that holds its claim.
// All that it does through tx happens once for each event, or not at all. It
// neither commits nor rolls back, does not keep tx, and ends when ctx does. It
// may be called again for the same event when its transaction did not commit, so
// what it does otherwise (a request to somebody) is not protected: write a
// message into the outbox instead.
type Handler func(ctx context.Context, tx pgx.Tx, m Message) error

// Beginner begins transactions: a *pgxpool.Pool, or a *pgx.Conn that nobody else
// uses.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Outcome is what became of a delivery.
type Outcome int

// The outcomes. A delivery is over with the first two, and is acknowledged.
const (
	// Handled: the handler did its work, and that has committed.
	Handled Outcome = iota + 1
	// Repeated: the event was handled before. Nothing was done.
	Repeated
	// Failed: nothing has happened, as far as is known. If the connection broke
	// during the commit, it may have; the next delivery finds out.
	Failed
	// Refused: nothing has happened, and trying again is of no use.
	Refused
)

// Done reports whether the delivery is over: acknowledge it.
func (o Outcome) Done() bool { return o == Handled || o == Repeated }

// String is the outcome in logs and reports.
func (o Outcome) String() string {
	switch o {
	case Handled:
		return "handled"
	case Repeated:
		return "repeated"
	case Failed:
		return "failed"
	case Refused:
		return "refused"
	}
	return fmt.Sprintf("outcome %d", int(o))
}

// MarshalText makes an outcome a word in logs too.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// DefaultRetention is longer than the days for which senders repeat, and than
// the queue keeps a message by default.
const DefaultRetention = 30 * 24 * time.Hour

const (
	defaultAttempts = 5
	collisionPause  = 10 * time.Millisecond // doubles, with jitter
	rollbackTimeout = 5 * time.Second
)

// Consumer handles events once. Its fields are not changed after its first use;
// it is safe for concurrent use, as far as DB is.
type Consumer struct {
	// Name keeps apart those that handle the same events for different ends. It
	// is part of the claim: another name handles everything again.
	Name string
	// DB begins the transactions, one for each delivery at work.
	DB Beginner
	// Handler does the work.
	Handler Handler
	// Retention is how long a claim is kept: longer than an event can come late,
	// and than somebody may want to replay. 0 is [DefaultRetention].
	Retention time.Duration
	// Outbox is the outbox that has the claims; nil is that of schema
	// [outbox.DefaultSchema].
	Outbox *outbox.Outbox
	// Options are those of the transactions. The zero value is read committed.
	Options pgx.TxOptions
	// Attempts is how often a transaction is tried that collides with others
	// (SQLSTATE 40001 and 40P01). 0 is 5.
	Attempts int
}

// Once handles one event: it begins a transaction, claims the event, runs the
// handler and commits. A repeat is a success. The error is nil exactly when the
// outcome is [Handled] or [Repeated]. A handler that panics is one that returns
// a [PanicError].
func Once(ctx context.Context, db Beginner, name string, retention time.Duration, m Message, handler Handler) (Outcome, error) {
	c := Consumer{Name: name, DB: db, Handler: handler, Retention: retention}
	return c.Handle(ctx, m)
}

// Handle is [Once] with this consumer.
func (c *Consumer) Handle(ctx context.Context, m Message) (Outcome, error) {
	outcome, _, err := c.handle(ctx, m, false)
	return outcome, err
}

// HandleResult is [Consumer.Handle], and reads what the handler stored by
// [outbox.Complete] into a value, as [json.Unmarshal] does: at the first delivery
// as at its repeats. The value stays as it is if nothing was stored. An error with
// the outcome [Handled] or [Repeated] is one of reading it.
func (c *Consumer) HandleResult(ctx context.Context, m Message, into any) (Outcome, error) {
	outcome, stored, err := c.handle(ctx, m, true)
	if err != nil || stored == nil {
		return outcome, err
	}
	return outcome, json.Unmarshal(stored, into)
}

func (c *Consumer) handle(ctx context.Context, m Message, result bool) (outcome Outcome, stored json.RawMessage, err error) {
	if err := checkID(m.ID); err != nil {
		return Refused, nil, err
	}
	attempts := c.Attempts
	if attempts == 0 {
		attempts = defaultAttempts
	}
	for attempt := 1; ; attempt++ {
		outcome, stored, err = c.attempt(ctx, m, result)
		if err == nil {
			return outcome, stored, nil
		}
		if IsPermanent(err) {
			return Refused, nil, err
		}
		if attempt >= attempts || !isCollision(err) || !sleep(ctx, jitter(collisionPause<<min(attempt-1, 10))) {
			return Failed, nil, err
		}
	}
}

// attempt is one transaction.
func (c *Consumer) attempt(ctx context.Context, m Message, result bool) (outcome Outcome, stored json.RawMessage, err error) {
	tx, err := c.DB.BeginTx(ctx, c.Options)
	if err != nil {
		return Failed, nil, noTransaction(err)
	}
	defer rollback(ctx, tx) // does nothing after a commit; also when the handler ends its goroutine
	won, err := c.claims().Claim(ctx, tx, c.Name, m.ID, c.retention())
	if err != nil {
		return Failed, nil, err
	}
	outcome = Repeated
	if won {
		outcome = Handled
		if err := protect(func() error { return c.Handler(ctx, tx, m) }); err != nil {
			return Failed, nil, fmt.Errorf("handle %q: %w", m.ID, err)
		}
	}
	if result {
		if _, err := c.claims().Result(ctx, tx, c.Name, m.ID, &stored); err != nil {
			return Failed, nil, err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return Failed, nil, fmt.Errorf("commit %q: %w", m.ID, err)
	}
	return outcome, stored, nil
}

func (c *Consumer) claims() *outbox.Outbox {
	if c.Outbox != nil {
		return c.Outbox
	}
	return standard
}

var standard = outbox.New(outbox.DefaultSchema)

func (c *Consumer) retention() time.Duration {
	if c.Retention == 0 {
		return DefaultRetention
	}
	return c.Retention
}

// probe reports whether the database takes transactions that write.
func (c *Consumer) probe(ctx context.Context) error {
	tx, err := c.DB.BeginTx(ctx, c.Options)
	if err != nil {
		return noTransaction(err)
	}
	defer rollback(ctx, tx)
	var readOnly bool // also on a standby
	if err := tx.QueryRow(ctx, `select current_setting('transaction_read_only')::boolean`).Scan(&readOnly); err != nil {
		return noTransaction(err)
	}
	if readOnly {
		return noTransaction(errReadOnly)
	}
	return nil
}

var errReadOnly = errors.New("the database takes no writes")

// validate reports what no delivery would get past.
func (c *Consumer) validate() error {
	var errs []error
	if n := len(c.Name); n == 0 || n > outbox.MaxConsumerBytes {
		errs = append(errs, fmt.Errorf("the consumer's Name has %d bytes, want 1 to %d", n, outbox.MaxConsumerBytes))
	}
	if c.DB == nil {
		errs = append(errs, errors.New("the consumer's DB is missing"))
	}
	if c.Handler == nil {
		errs = append(errs, errors.New("the consumer's Handler is missing"))
	}
	if c.Retention < 0 {
		errs = append(errs, fmt.Errorf("the consumer's Retention is %s, want more than 0", c.Retention))
	}
	return errors.Join(errs...)
}

// rollback ends a transaction also when its context has ended: the connection
// goes back to its pool, and nobody waits for the claim.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(ctx) // a connection that cannot roll back is closed, which does the same
}

// jitter is between half of d and d, so that those who collided part.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// sleep reports whether the time has passed before the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
