package poll

import (
	"context"
	"time"

	"github.com/outbox-relay/outbox-relay/outbox"
)

const (
	// pageSize is how many numbers are looked up in one statement: enough to get
	// through an old table quickly, few enough to hear of a stop in between.
	pageSize = 20_000
	// chunkRows and chunkBytes bound the messages that are read at once; the
	// last one may go beyond.
	chunkRows  = 500
	chunkBytes = 1 << 20
)

// reader finds the messages of a session, each once.
type reader struct {
	table    *table
	patience time.Duration // see Config
	writers  writers
	oid      int64 // of the table; 0 before the first look

	floor    int64 // every message up to this one is handed over or has an outcome
	frontier int64 // likewise, without regard to order and to transactions that are open and have been for long
	ready    []int64
	held     int64 // ordered messages up to this one were seen; those above the floor wait

	// handed are the messages that were handed over and whose outcome is not
	// known to be durable, by their numbers.
	handed map[uint64]int64
	next   uint64
}

// read returns messages to hand over; none if there is nothing new.
func (r *reader) read(ctx context.Context, now time.Time) ([]outbox.Row, error) {
	for {
		if len(r.ready) == 0 {
			if err := r.look(ctx, now); err != nil || len(r.ready) == 0 {
				return nil, err
			}
		}
		rows, err := r.take(ctx)
		if err != nil || len(rows) > 0 {
			return rows, err
		}
	}
}

// take reads the next messages that are ready.
func (r *reader) take(ctx context.Context) ([]outbox.Row, error) {
	ids := r.ready[:min(chunkRows, len(r.ready))]
	rows, rest, err := r.table.rows(ctx, ids, chunkBytes)
	if err != nil {
		return nil, err
	}
	r.ready = r.ready[len(ids)-len(rest):]
	for i := range rows {
		r.handed[r.next] = rows[i].ID
		r.next++
	}
	return rows, nil
}

// resolve forgets messages whose outcomes are durable: from now on the tables
// say so. It must not be called between a look and what is made of it.
func (r *reader) resolve(numbers []uint64) {
	for _, n := range numbers {
		delete(r.handed, n)
	}
}

// look finds what is ready. The order of its steps is what makes a number
// settled: the last number, the holders, the messages.
func (r *reader) look(ctx context.Context, now time.Time) error {
	n, err := r.table.numbers(ctx)
	if err != nil {
		return err
	}
	if r.oid != 0 && r.oid != n.table || n.last < r.writers.last {
		return errReplaced
	}
	r.oid = n.table
	if n.last == r.floor {
		return nil // nobody took a number since everything was settled
	}
	holders, err := r.table.holders(ctx, n.table)
	if err != nil {
		return err
	}
	r.writers.observe(now, n.last, holders)
	// The frontier may have passed what one of them had yet to commit.
	r.frontier = min(r.frontier, r.writers.ended)
	if err := r.lookSettled(ctx, r.writers.settled()); err != nil || len(r.ready) > 0 {
		return err
	}
	return r.lookAhead(ctx, r.writers.settledWithout(now.Add(-r.patience)))
}

// lookSettled goes through the settled part of the table, which it never sees
// again.
func (r *reader) lookSettled(ctx context.Context, settled int64) error {
	for r.floor < settled && len(r.ready) == 0 {
		p, err := r.table.page(ctx, r.floor, settled, false)
		if err != nil {
			return err
		}
		r.ready = r.fresh(p.open)
		r.floor = settled
		if p.full {
			r.floor = p.last
		}
	}
	r.frontier = max(r.frontier, r.floor)
	return nil
}

// lookAhead goes through the rest for what needs no order. It comes back to
// numbers that are not settled, unless somebody holds them for long: then when that
// one has ended.
func (r *reader) lookAhead(ctx context.Context, settled int64) error {
	for above := r.frontier; above < r.writers.last && len(r.ready) == 0; {
		p, err := r.table.page(ctx, above, r.writers.last, true)
		if err != nil {
			return err
		}
		r.ready = r.fresh(p.open)
		if p.waiting > 0 {
			r.held = p.last
		}
		above = r.writers.last
		if p.full {
			above = p.last
		}
		r.frontier = max(r.frontier, min(above, settled))
	}
	return nil
}

// more reports whether there is more to read at once.
func (r *reader) more(rows []outbox.Row) bool { return len(r.ready) > 0 || len(rows) == chunkRows }

// obstacle is the transaction that holds ordered messages back for longer than
// anybody should wait.
func (r *reader) obstacle(now time.Time) (writer, bool) {
	w, found := r.writers.obstacle()
	return w, found && r.held > r.floor && now.Sub(w.since) >= r.patience
}

// fresh leaves out what was handed over.
func (r *reader) fresh(ids []int64) []int64 {
	handed := make(map[int64]bool, len(r.handed))
	for _, id := range r.handed {
		handed[id] = true
	}
	var fresh []int64
	for _, id := range ids {
		if !handed[id] {
			fresh = append(fresh, id)
		}
	}
	return fresh
}
