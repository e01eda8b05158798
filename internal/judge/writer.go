package judge

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// reconnectPause is the wait before the server is tried again.
const reconnectPause = 50 * time.Millisecond

// writer commits transactions one after the other and logs what became of them.
type writer struct {
	number int
	url    string
	lanes  []int32
	ledger *ledger
	seed   uint64
	mood   mood
	slowly *atomic.Bool // everybody writes less
	sick   *atomic.Int32
	conn   *pgx.Conn
}

// slowPause is what a writer waits between two transactions when it writes less.
const slowPause = 2 * time.Second

// run writes until writing ends. What became of the last transaction it finds
// out also after that, unless ctx ends.
func (w *writer) run(ctx, writing context.Context) {
	defer func() {
		if w.conn != nil {
			_ = w.conn.Close(context.WithoutCancel(ctx))
		}
	}()
	var leave func(context.Context) // withdraws a message of the last transaction
	for number := 0; ; number++ {
		p := newPlan(w.seed, w.number, number, w.lanes, w.mood)
		if !waits.Sleep(writing, w.pause(&p)) {
			return
		}
		for w.connect(ctx) != nil {
			if !waits.Sleep(writing, reconnectPause) {
				return
			}
		}
		if leave != nil {
			leave(ctx)
		}
		leave = w.transaction(ctx, &p)
	}
}

func (w *writer) pause(p *plan) time.Duration {
	if w.slowly.Load() {
		return p.pause%slowPause + slowPause/2
	}
	return p.pause
}

func (w *writer) connect(ctx context.Context) (err error) {
	if w.conn != nil && !w.conn.IsClosed() {
		return nil
	}
	w.conn, err = pgx.Connect(ctx, w.url)
	return err
}

// transaction writes some rows, and commits them or not. If one of them is to be
// withdrawn, it returns what does that.
func (w *writer) transaction(ctx context.Context, p *plan) (leave func(context.Context)) {
	rows := w.rows(p)
	first := w.ledger.begin(w.number, rows)
	batch := &pgx.Batch{}
	for i := range rows {
		w.insert(batch, first+i, &rows[i])
	}
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		w.ledger.end(w.number, first, len(rows), rolledBack)
		return nil
	}
	err = tx.SendBatch(ctx, batch).Close()
	waits.Sleep(ctx, p.open) // others commit meanwhile
	if err != nil || p.rollback {
		_ = tx.Rollback(ctx)
		w.ledger.end(w.number, first, len(rows), rolledBack)
		return nil
	}
	if err := tx.Commit(ctx); err != nil {
		w.lookUp(ctx, first, rows)
		return nil
	}
	w.ledger.end(w.number, first, len(rows), committed)
	if p.withdraw < 0 {
		return nil
	}
	return w.leave(ctx, name{w.number, first + p.withdraw}, p.patient)
}

// rows are those of a plan as the ledger keeps them.
func (w *writer) rows(p *plan) []row {
	rows := make([]row, len(p.rows))
	now := w.ledger.report.moment(time.Now())
	for i, planned := range p.rows {
		rows[i] = row{
			lane: planned.lane, queue: planned.queue, fill: planned.fill, delay: planned.delay, priority: planned.priority,
		}
		if planned.later > 0 {
			rows[i].due = now + milliseconds(planned.later)
		}
		if planned.sick {
			rows[i].generation = uint8(w.sick.Load())
		}
	}
	return rows
}

func (w *writer) insert(batch *pgx.Batch, n int, r *row) {
	var orderingKey *string
	if r.lane >= 0 {
		name := fmt.Sprintf("lane%d", r.lane)
		orderingKey = &name
	}
	var deliverAt *time.Time
	if r.due != 0 {
		at := w.ledger.report.time(r.due)
		deliverAt = &at
	}
	batch.Queue(`insert into outbox.messages (key, queue, ordering_key, payload, delay_seconds, priority, deliver_at)
		values ($1, $2, $3, jsonb_build_object('key', $1::text, 'fill', repeat('x', $4)), $5, $6, $7)`,
		key(w.number, n, r.generation), queues[r.queue], orderingKey, int(r.fill), option(r.delay), option(r.priority), deliverAt)
}

// option is a number that may be missing.
func option(n int8) *int {
	if n < 0 {
		return nil
	}
	value := int(n)
	return &value
}

// leave returns what withdraws a message. That it is deferred, and that the slot
// has passed its commit, is what makes a withdrawal certain.
func (w *writer) leave(ctx context.Context, n name, patient bool) func(context.Context) {
	var after string
	if w.conn.QueryRow(ctx, `select pg_current_wal_insert_lsn()::text`).Scan(&after) != nil {
		return nil
	}
	return func(ctx context.Context) { w.withdraw(ctx, n, patient, after) }
}

const sqlWithdraw = `
with gone as (
	delete from outbox.messages m
	where m.key = $1 and (not $2::bool or exists (select from outbox.deferred d where d.message_id = m.id))
	returning exists (select from outbox.deferred d where d.message_id = m.id) as deferred
)
select count(*), coalesce(bool_and(deferred), false),
	exists (select from pg_replication_slots where slot_name = $3 and confirmed_flush_lsn >= $4::pg_lsn)
from gone`

// withdraw deletes a message; a patient writer only if it is deferred.
func (w *writer) withdraw(ctx context.Context, n name, patient bool, after string) {
	var gone int
	var deferred, passed bool
	w.ledger.deleting(n)
	err := w.conn.QueryRow(ctx, sqlWithdraw, key(n.writer, n.n, 0), patient, slot, after).Scan(&gone, &deferred, &passed)
	switch {
	case err != nil: // it may be gone or not
		w.ledger.report.count(&w.ledger.report.Withdrawals.Deleted)
	case gone == 0:
		w.ledger.kept(n)
	case deferred && passed:
		w.ledger.withdraw(n)
		w.ledger.report.count(&w.ledger.report.Withdrawals.Deferred)
	default:
		w.ledger.report.count(&w.ledger.report.Withdrawals.Deleted)
	}
}

// lookUp finds out whether a commit happened whose answer was lost. The server
// that did it, or did not, has ended when another one takes connections.
func (w *writer) lookUp(ctx context.Context, first int, rows []row) {
	for ctx.Err() == nil {
		var found bool
		err := w.connect(ctx)
		if err == nil {
			err = w.conn.QueryRow(ctx, `select exists (select from outbox.messages where key = $1)`,
				key(w.number, first, rows[0].generation)).Scan(&found)
		}
		if err != nil {
			waits.Sleep(ctx, reconnectPause)
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
