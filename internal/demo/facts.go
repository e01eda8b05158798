package demo

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// facts are what each party says for itself at one moment.
type facts struct {
	// The tills.
	sales
	// The queue: its journal, the leases that it counted, and what it still has.
	requests []request
	consumed int64
	left     int64
	// The consumers.
	handled, suppressed int64
	// The database: rows, what was done for each event, which keys are marked as
	// dispatched, and how many bytes of WAL the slot has not confirmed.
	orderRows, messageRows int64
	effects                map[string]int
	marked                 map[string]bool
	behind                 int64
	// How often the relay was killed.
	kills int
}

// gather asks everybody. What moves while it asks can disagree; what has come
// to rest cannot.
func (d *demo) gather(ctx context.Context, conn *pgx.Conn) (f facts, err error) {
	f.sales, f.requests, f.kills = d.book.read(), d.journal.read(), int(d.kills.Load())
	for _, name := range []string{ordersQueue, lettersQueue} {
		n, err := d.queue.left(ctx, name)
		if err != nil {
			return f, err
		}
		f.left += int64(n)
	}
	counters, err := d.queue.counters(ctx)
	if err != nil {
		return f, err
	}
	f.consumed = counters.Consumed
	f.handled, f.suppressed = d.tally.handled.Load(), d.tally.suppressed.Load()
	return f, f.ask(ctx, conn)
}

// ask reads the tables.
func (f *facts) ask(ctx context.Context, conn *pgx.Conn) error {
	err := conn.QueryRow(ctx, `
		select (select count(*) from shop.orders), (select count(*) from outbox.messages),
			(select (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint from pg_replication_slots where slot_name = $1)`,
		slot).Scan(&f.orderRows, &f.messageRows, &f.behind)
	if err != nil {
		return err
	}
	f.effects = map[string]int{}
	var event string
	var times int
	rows, _ := conn.Query(ctx, `select event, count(*) from shop.handled group by event`) // ForEachRow has the error
	if _, err = pgx.ForEachRow(rows, []any{&event, &times}, func() error { f.effects[event] = times; return nil }); err != nil {
		return err
	}
	f.marked = map[string]bool{}
	rows, _ = conn.Query(ctx, `select m.key from outbox.messages m join outbox.dispatched d on d.message_id = m.id`)
	_, err = pgx.ForEachRow(rows, []any{&event}, func() error { f.marked[event] = true; return nil })
	return err
}
