package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// EnqueueConfig says how many messages are written.
type EnqueueConfig struct {
	// Rows is how many are written in each way in each round, in one transaction,
	// and Transactions how many transactions are committed of each kind.
	Rows, Transactions int
	// Payload is the size of a message's payload in bytes.
	Payload int
	// Rounds is how often every way has its turn.
	Rounds int
	// PostgresVersion is a major version; empty means any that is found.
	PostgresVersion string
	// Progress gets a line for each step; it may be nil.
	Progress io.Writer
}

// Validate reports every setting with which nothing could be measured.
func (c *EnqueueConfig) Validate() error {
	var errs []error
	if c.Rows < enqueueBatch {
		errs = append(errs, fmt.Errorf("rows is %d, want at least %d", c.Rows, enqueueBatch))
	}
	for name, n := range map[string]int{"transactions": c.Transactions, "rounds": c.Rounds} {
		if n < 1 {
			errs = append(errs, fmt.Errorf("%s is %d, want at least 1", name, n))
		}
	}
	if c.Payload > outbox.MaxPayloadBytes {
		errs = append(errs, fmt.Errorf("payload is %d, want at most %d", c.Payload, outbox.MaxPayloadBytes))
	}
	return errors.Join(errs...)
}

// enqueueBatch is how many messages a batch has.
const enqueueBatch = 100

// The table has the columns that the messages fill, and neither constraint nor
// trigger nor index.
const sqlBare = `
create table bench_bare (
	id bigint generated always as identity,
	created_at timestamptz not null default now(),
	key text, queue text, ordering_key text, payload jsonb
);
create table bench_business (id bigint generated always as identity primary key, total int not null)`

const (
	sqlInsertBare     = `insert into bench_bare (key, queue, ordering_key, payload) values ($1, $2, $3, $4)`
	sqlInsertBareMany = `insert into bench_bare (key, queue, ordering_key, payload)
		select * from unnest($1::text[], $2::text[], $3::text[], $4::jsonb[])`
	sqlInsertMessage  = `insert into outbox.messages (key, queue, ordering_key, payload) values ($1, $2, $3, $4)`
	sqlEnqueue        = `select outbox.enqueue(key => $1, queue => $2, ordering_key => $3, payload => $4)`
	sqlInsertBusiness = `insert into bench_business (total) values (1)`
)

// way is one way to write messages.
type way struct {
	name, what string
	each       int // messages of a call
	write      func(context.Context, pgx.Tx, []outbox.Message) error
	next       string // what it is held against

	took, wal, ratio figures // microseconds and bytes a row
}

// one is a way that gives a statement the columns of one message.
func one(sql string) func(context.Context, pgx.Tx, []outbox.Message) error {
	return func(ctx context.Context, tx pgx.Tx, messages []outbox.Message) error {
		m := messages[0]
		_, err := tx.Exec(ctx, sql, m.Key, m.Queue, m.OrderingKey, m.Payload)
		return err
	}
}

// bareMany writes the columns as arrays.
func bareMany(ctx context.Context, tx pgx.Tx, messages []outbox.Message) error {
	keys, queues := make([]string, len(messages)), make([]string, len(messages))
	orderingKeys, payloads := make([]string, len(messages)), make([]any, len(messages))
	for i, m := range messages {
		keys[i], queues[i], orderingKeys[i], payloads[i] = m.Key, m.Queue, m.OrderingKey, m.Payload
	}
	_, err := tx.Exec(ctx, sqlInsertBareMany, keys, queues, orderingKeys, payloads)
	return err
}

func enqueue(ctx context.Context, tx pgx.Tx, messages []outbox.Message) error {
	_, err := outbox.Enqueue(ctx, tx, messages...)
	return err
}

func ways() []*way {
	return []*way{
		{name: "bare", what: "bare INSERT, a table without constraints", each: 1, write: one(sqlInsertBare)},
		{name: "insert", what: "INSERT into outbox.messages", each: 1, write: one(sqlInsertMessage), next: "bare"},
		{name: "function", what: "SQL function outbox.enqueue", each: 1, write: one(sqlEnqueue), next: "bare"},
		{name: "one", what: "outbox.Enqueue, one message", each: 1, write: enqueue, next: "bare"},
		{name: "bare_hundred", what: "bare INSERT of 100 rows from arrays", each: enqueueBatch, write: bareMany},
		{name: "hundred", what: "outbox.Enqueue, 100 messages", each: enqueueBatch, write: enqueue, next: "bare_hundred"},
	}
}

// enqueuing is a measurement under way.
type enqueuing struct {
	cfg     EnqueueConfig
	rig     *rig
	conn    *pgx.Conn
	payload json.RawMessage
	written int

	plain, message, ratio figures // microseconds a transaction
}

// RunEnqueue measures what writing a message costs, next to a bare INSERT of the
// same bytes, and what it adds to a transaction.
func RunEnqueue(ctx context.Context, cfg EnqueueConfig) (*Report, error) {
	e := &enqueuing{cfg: cfg}
	var err error
	if e.payload, err = json.Marshal(map[string]string{"fill": filler(max(0, cfg.Payload-len(`{"fill": ""}`)))}); err != nil {
		return nil, err
	}
	if e.rig, err = newRig(ctx, Config{PostgresVersion: cfg.PostgresVersion, Progress: cfg.Progress, Log: zap.NewNop()}); err != nil {
		return nil, err
	}
	defer e.rig.close()
	if err := e.rig.exec(ctx, sqlBare); err != nil {
		return nil, err
	}
	if e.conn, err = pgx.Connect(ctx, e.rig.url); err != nil {
		return nil, err
	}
	defer e.conn.Close(context.WithoutCancel(ctx))
	ways := ways()
	for round := range cfg.Rounds + 1 { // the first warms up
		if err := e.round(ctx, round, ways); err != nil {
			return nil, err
		}
	}
	report := newReport(e.rig, cfg.Rounds)
	report.Workload = fmt.Sprintf("%d rows with a payload of %d bytes in each way", cfg.Rows, cfg.Payload)
	report.Results = e.results(ways)
	return report, nil
}

// round gives every way its turn, each time another one first.
func (e *enqueuing) round(ctx context.Context, round int, ways []*way) error {
	took, wal := map[string]float64{}, map[string]float64{}
	for i := range ways {
		w := ways[(i+round)%len(ways)]
		var err error
		if took[w.name], wal[w.name], err = e.measure(ctx, w); err != nil {
			return fmt.Errorf("%s: %w", w.what, err)
		}
	}
	plain, err := e.transactions(ctx, false)
	if err != nil {
		return err
	}
	message, err := e.transactions(ctx, true)
	if err != nil || round == 0 {
		return err
	}
	for _, w := range ways {
		w.took, w.wal = append(w.took, took[w.name]), append(w.wal, wal[w.name])
		if w.next != "" {
			w.ratio = append(w.ratio, took[w.name]/took[w.next])
		}
	}
	e.plain, e.message, e.ratio = append(e.plain, plain), append(e.message, message), append(e.ratio, message/plain)
	e.rig.say("enqueue %d/%d: %.0f us a row bare, %.0f by Enqueue, %.0f in hundreds", round, e.cfg.Rounds, took["bare"], took["one"], took["hundred"])
	return nil
}

// measure writes messages in one transaction. The time is that of the
// statements, in microseconds, and the WAL that of the whole, in bytes, each for
// a row.
func (e *enqueuing) measure(ctx context.Context, w *way) (took, wal float64, err error) {
	before, err := e.rig.position(ctx)
	if err != nil {
		return 0, 0, err
	}
	tx, err := e.conn.Begin(ctx)
	if err != nil {
		return 0, 0, err
	}
	rows := e.cfg.Rows / w.each * w.each
	began := time.Now()
	for range rows / w.each {
		if err := w.write(ctx, tx, e.messages(w.each)); err != nil {
			return 0, 0, err
		}
	}
	spent := time.Since(began)
	if err := tx.Commit(ctx); err != nil {
		return 0, 0, err
	}
	after, err := e.rig.position(ctx)
	return float64(spent.Microseconds()) / float64(rows), float64(after-before) / float64(rows), err
}

// transactions commits transactions of one business row each, with a message or
// without, and returns the microseconds of one.
func (e *enqueuing) transactions(ctx context.Context, withMessage bool) (took float64, err error) {
	began := time.Now()
	for range e.cfg.Transactions {
		tx, err := e.conn.Begin(ctx)
		if err != nil {
			return 0, err
		}
		if _, err := tx.Exec(ctx, sqlInsertBusiness); err != nil {
			return 0, err
		}
		if withMessage {
			if err := enqueue(ctx, tx, e.messages(1)); err != nil {
				return 0, err
			}
		}
		if err := tx.Commit(ctx); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(began).Microseconds()) / float64(e.cfg.Transactions), nil
}

// messages makes messages with new keys.
func (e *enqueuing) messages(n int) []outbox.Message {
	messages := make([]outbox.Message, n)
	for i := range messages {
		e.written++
		messages[i] = outbox.Message{
			Key: fmt.Sprintf("order-%d-placed", e.written), Queue: "orders", OrderingKey: fmt.Sprintf("order-%d", e.written), Payload: e.payload,
		}
	}
	return messages
}

func (e *enqueuing) results(ways []*way) (results []Result) {
	for _, w := range ways {
		results = append(results,
			w.took.result("enqueue."+w.name, w.what, "us/row"),
			w.wal.result("enqueue."+w.name+"_wal", "- its WAL", "bytes/row"))
		if w.next != "" {
			results = append(results, w.ratio.result("enqueue."+w.name+"_ratio", "- its time / bare", "ratio"))
		}
	}
	return append(results,
		e.plain.result("enqueue.transaction", "transaction with one business row, committed", "us"),
		e.message.result("enqueue.transaction_message", "the same with one outbox.Enqueue", "us"),
		e.ratio.result("enqueue.transaction_ratio", "- with / without", "ratio"))
}
