package bench

import (
	"context"
	"fmt"
	"time"
)

const (
	poisonLanes = 100
	// poisonSpan is how long the lanes are watched with and without a poison,
	// in turn. It is long enough for the poison to be deferred.
	poisonSpan = 5 * time.Second
)

// measurePoison takes the time from the start of a transaction to acceptance in
// ninety-nine lanes, while the hundredth has a message that the queue answers
// with 500 again and again, and while it has none.
func measurePoison(ctx context.Context, r *rig) ([]Result, error) {
	queue, err := startQueue(ctx, "")
	if err != nil {
		return nil, err
	}
	defer queue.stop()
	if err := r.exec(ctx, `truncate outbox.messages, outbox.dispatched, outbox.deferred, outbox.dead_letters`); err != nil {
		return nil, err
	}
	r.filled = 0
	moving, err := startProgram(ctx, "", map[string]string{
		"DATABASE_URL": r.url, "RELAY_SLOT": "bench_poison", "INFRAI_API_KEY": "bench", "INFRAI_BASE_URL": queue.url,
	}, nil, false, "run")
	if err != nil {
		return nil, err
	}
	defer moving.stop()

	lanes := flow{queue: mainQueue, group: "lanes", keys: poisonLanes, timed: true, rate: latencyRate, each: 1, writers: latencyWriters, fill: filler(360)}
	enough, ended := make(chan struct{}), make(chan error, 1)
	committed := newTally()
	writing, stop := context.WithCancel(ctx)
	defer stop()
	go func() { ended <- lanes.run(writing, r.url, committed, enough) }()
	turns, err := r.poisonInTurns(ctx, queue, lanes)
	close(enough)
	if writeErr := <-ended; err == nil {
		err = writeErr
	}
	if err != nil {
		return nil, err
	}
	books, err := queue.booksOf(ctx, committed.total()+r.cfg.Runs)
	if err != nil {
		return nil, err
	}
	return r.poisonResults(books, turns), nil
}

// turn is a span with a poison or without.
type turn struct {
	from, to time.Time
	poisoned bool
}

// poisonInTurns lets the lanes run with a poison and without, in turn. At the
// end of its turn the queue takes the poison.
func (r *rig) poisonInTurns(ctx context.Context, queue *remoteQueue, lanes flow) (turns []turn, err error) {
	if err := pause(ctx, poisonSpan); err != nil { // warms up
		return nil, err
	}
	for run := range r.cfg.Runs {
		for _, poisoned := range []bool{false, true} {
			key := "none"
			if poisoned {
				key = fmt.Sprintf("poison%d.p-0", run)
			}
			if err := queue.refuseKey(ctx, key); err != nil {
				return nil, err
			}
			t := turn{from: time.Now(), poisoned: poisoned}
			if poisoned {
				var b batch
				b.add(fmt.Sprintf("poison%d.p", run), lanes.group+".k0", 0)
				if err := lanes.commit(ctx, r.conn, b); err != nil {
					return nil, err
				}
			}
			if err := pause(ctx, poisonSpan); err != nil {
				return nil, err
			}
			t.to = time.Now()
			turns = append(turns, t)
		}
	}
	return turns, queue.refuseKey(ctx, "none")
}

// booksOf waits until so many keys were accepted and returns the books.
func (q *remoteQueue) booksOf(ctx context.Context, keys int) (b Books, err error) {
	ctx, cancel := context.WithTimeout(ctx, graceful)
	defer cancel()
	for {
		if b, err = q.books(ctx); err != nil || b.total() >= keys {
			return b, err
		}
		if err := pause(ctx, time.Second/2); err != nil {
			return b, fmt.Errorf("%d of %d messages were accepted: %w", b.total(), keys, err)
		}
	}
}

// poisonResults compares the turns.
func (r *rig) poisonResults(books Books, turns []turn) []Result {
	p50, p99 := map[bool]figures{}, map[bool]figures{}
	for _, t := range turns {
		var took []int64
		for _, w := range books.Waits {
			if name, _ := group(w.Stream); name == "lanes" && w.Stream != "lanes.k0" && t.from.UnixMicro() <= w.At && w.At < t.to.UnixMicro() {
				took = append(took, w.Took)
			}
		}
		p50[t.poisoned] = append(p50[t.poisoned], percentile(took, 50))
		p99[t.poisoned] = append(p99[t.poisoned], percentile(took, 99))
	}
	var ratio figures
	for run := range r.cfg.Runs {
		ratio = append(ratio, p99[true][run]/p99[false][run])
		r.say("poison %d/%d: p50 %.1f ms without, %.1f ms with; p99 %.1f ms without, %.1f ms with", run+1, r.cfg.Runs,
			p50[false][run], p50[true][run], p99[false][run], p99[true][run])
	}
	return []Result{
		p50[false].result("poison.p50_without", "99 lanes, transaction to accepted at 1,000/s, median", "ms"),
		p50[true].result("poison.p50", "the same while the hundredth lane has a poison", "ms"),
		p99[false].result("poison.p99_without", "99 lanes, 99th percentile", "ms"),
		p99[true].result("poison.p99", "the same while the hundredth lane has a poison", "ms"),
		ratio.result("poison.p99_ratio", "99th percentile with / without the poison", "ratio").below(1.5),
		figures{float64(books.Breaches)}.result("poison.breaches", "order breaches in all lanes", "messages").atMost(0),
	}
}
