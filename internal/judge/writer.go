package judge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// queues are where messages go: the lane says which, so that a lane has one.
var queues = []string{"orders", "invoices", "emails", "audit"}

const (
	maxRows        = 20
	rollbackShare  = 0.1
	keylessShare   = 0.2
	poisonShare    = 0.0005
	largeShare     = 0.01
	laterShare     = 0.02 // of the messages are scheduled
	latest         = 5 * time.Second
	withdrawShare  = 0.1  // of the transactions lose a message after their commit
	slowShare      = 0.02 // of the transactions stay open for a while
	slowest        = 4 * time.Second
	reconnectPause = 50 * time.Millisecond
)

// writer commits transactions one after the other and logs what became of them.
type writer struct {
	number int
	url    string
	lanes  []int32
	ledger *ledger
	dice   *rand.Rand
	pause  time.Duration // the longest between two transactions
	conn   *pgx.Conn
}

// run writes until writing ends. What became of the last transaction it finds
// out also after that, unless ctx ends.
func (w *writer) run(ctx, writing context.Context) {
	defer func() {
		if w.conn != nil {
			_ = w.conn.Close(context.WithoutCancel(ctx))
		}
	}()
	for wait(writing, rand.N(w.pause)) {
		if w.connect(ctx) != nil {
			wait(writing, reconnectPause)
			continue
		}
		w.transaction(ctx)
	}
}

func (w *writer) connect(ctx context.Context) (err error) {
	if w.conn != nil && !w.conn.IsClosed() {
		return nil
	}
	w.conn, err = pgx.Connect(ctx, w.url)
	return err
}

// transaction writes some rows, and commits them or not.
func (w *writer) transaction(ctx context.Context) {
	rows := make([]row, 1+w.dice.IntN(maxRows))
	for i := range rows {
		rows[i].lane = -1
		if w.dice.Float64() >= keylessShare {
			rows[i].lane = w.lanes[w.dice.IntN(len(w.lanes))]
		}
		rows[i].poison = w.dice.Float64() < poisonShare
		rows[i].later = w.dice.Float64() < laterShare
	}
	first := w.ledger.begin(w.number, rows)
	batch := &pgx.Batch{}
	for i := range rows {
		w.insert(batch, first+i, &rows[i])
	}
	rollback := w.dice.Float64() < rollbackShare
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		w.ledger.end(w.number, first, len(rows), rolledBack)
		return
	}
	err = tx.SendBatch(ctx, batch).Close()
	if w.dice.Float64() < slowShare {
		wait(ctx, between(w.dice, 0, slowest)) // others commit meanwhile
	}
	if err != nil || rollback {
		_ = tx.Rollback(ctx)
		w.ledger.end(w.number, first, len(rows), rolledBack)
		return
	}
	if err := tx.Commit(ctx); err != nil {
		w.lookUp(ctx, first, rows)
		return
	}
	w.ledger.end(w.number, first, len(rows), committed)
	if n := w.dice.IntN(len(rows)); !rows[n].poison && w.dice.Float64() < withdrawShare {
		w.withdraw(ctx, first+n)
	}
}

// withdraw deletes a message. Whether that comes in time, or happens at all, is
// nobody's promise.
func (w *writer) withdraw(ctx context.Context, n int) {
	w.ledger.withdraw(w.number, n)
	_, _ = w.conn.Exec(ctx, `delete from outbox.messages where key = $1`, key(w.number, n, false))
}

func (w *writer) insert(batch *pgx.Batch, n int, r *row) {
	var orderingKey *string
	queue := queues[w.dice.IntN(len(queues))]
	if r.lane >= 0 {
		name := fmt.Sprintf("lane%d", r.lane)
		orderingKey, queue = &name, queues[int(r.lane)%len(queues)]
	}
	size := w.dice.IntN(300)
	if w.dice.Float64() < largeShare {
		size = w.dice.IntN(20_000)
	}
	var deliverAt *time.Time
	if r.later {
		at := time.Now().Add(between(w.dice, 0, latest))
		deliverAt = &at
	}
	batch.Queue(`insert into outbox.messages (key, queue, ordering_key, payload, deliver_at)
		values ($1, $2, $3, jsonb_build_object('key', $1::text, 'fill', repeat('x', $4)), $5)`,
		key(w.number, n, r.poison), queue, orderingKey, size, deliverAt)
}

// lookUp finds out whether a commit happened whose answer was lost. The server
// that did it, or did not, has ended when another one takes connections.
func (w *writer) lookUp(ctx context.Context, first int, rows []row) {
	for ctx.Err() == nil {
		var found bool
		err := w.connect(ctx)
		if err == nil {
			err = w.conn.QueryRow(ctx, `select exists (select from outbox.messages where key = $1)`,
				key(w.number, first, rows[0].poison)).Scan(&found)
		}
		if err != nil {
			wait(ctx, reconnectPause)
			continue
		}
		became := rolledBack
		if found {
			became = committed
		}
		w.ledger.end(w.number, first, len(rows), became)
		return
	}
}

// wait waits for d and reports whether ctx is still alive.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
