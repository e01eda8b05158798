package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

const (
	// killTimes is how often the relay is killed while the shop sells.
	killTimes = 2
	// lostShare is the share of publishes whose answer the queue loses.
	lostShare = 0.05
	// settleTimeout is how long everything may take to arrive after the last
	// sale. It takes a few seconds: a lease has to end.
	settleTimeout = 30 * time.Second
	// settleInterval is how often the account is drawn until it holds.
	settleInterval = 300 * time.Millisecond
)

// play opens the shop and returns the account once it holds, or once it is too
// late for that.
func (d *demo) play(ctx context.Context) (account *Account, err error) {
	ctx, done := context.WithCancel(ctx)
	defer done()
	g, ctx := errgroup.WithContext(ctx)
	d.opened = time.Now()
	for i, name := range []string{ordersQueue, ordersQueue, ordersQueue, lettersQueue} {
		dice := rand.New(rand.NewPCG(d.cfg.Seed, uint64(100+i)))
		g.Go(func() error { return runConsumer(ctx, d.queue, name, dice, d.stage.databaseURL, &d.tally) })
	}
	g.Go(func() error { return d.journal.follow(ctx) })
	g.Go(func() error { return d.tellProgress(ctx) })
	g.Go(func() error { return d.tendRelay(ctx) })
	g.Go(func() error {
		defer done()
		if err := d.sell(ctx); err != nil {
			return err
		}
		d.event("shop closed, what is on its way arrives")
		account, err = d.settle(ctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return account, err
	}
	return account, account.problem()
}

// sell runs the tills until the shop closes.
func (d *demo) sell(ctx context.Context) error {
	open, cancel := context.WithTimeout(ctx, d.cfg.Load)
	defer cancel()
	pace := rate.NewLimiter(salesPerSecond, 1)
	g, ctx := errgroup.WithContext(ctx)
	for i := range tills {
		g.Go(func() error { return runTill(ctx, open, i+1, d.cfg.Seed, d.stage.databaseURL, pace, &d.book) })
	}
	return g.Wait()
}

// tendRelay kills the relay and starts it again, and notices if a process ends
// by itself. It ends with ctx, which is not an error.
func (d *demo) tendRelay(ctx context.Context) error {
	for i := range killTimes {
		at := d.cfg.Load * time.Duration(i+1) / (killTimes + 1)
		if err := d.watch(ctx, time.After(time.Until(d.opened.Add(at)))); err != nil || ctx.Err() != nil {
			return err
		}
		d.stage.relay.kill()
		d.kills.Add(1)
		d.event("relay killed with -9")
		if err := d.stage.startRelay(); err != nil {
			return err
		}
		d.event("relay started again, process %d", d.stage.relay.PID())
	}
	return d.watch(ctx, nil)
}

// watch waits for a moment or for the end of ctx, as long as the processes live.
func (d *demo) watch(ctx context.Context, until <-chan time.Time) error {
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return nil
	case <-d.stage.relay.Done():
		return d.stage.relay.ended()
	case <-d.stage.queue.Done():
		return d.stage.queue.ended()
	}
}

// tellProgress tells how far everything is until ctx ends, which is not an
// error.
func (d *demo) tellProgress(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, d.stage.databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for pause(ctx, d.talk.interval()) == nil {
		p, err := d.progress(ctx, conn)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		d.talk.progress(time.Since(d.opened), p)
	}
	return nil
}

// progress asks against the way of the messages, so that the numbers fall from
// left to right. Only the first can be behind: the WAL is sometimes faster than
// the answer to a till.
func (d *demo) progress(ctx context.Context, conn *pgx.Conn) (p progress, err error) {
	p.handled = d.tally.handled.Load()
	if err := conn.QueryRow(ctx, `select count(*) from outbox.dispatched`).Scan(&p.marked); err != nil {
		return p, err
	}
	counters, err := d.queue.counters(ctx)
	p.accepted, p.committed = counters.Accepted, int64(len(d.book.read().messages))
	return p, err
}

// settle draws the account until it holds, or until everything had time enough
// to arrive.
func (d *demo) settle(ctx context.Context) (*Account, error) {
	conn, err := pgx.Connect(ctx, d.stage.databaseURL)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for late := time.Now().Add(settleTimeout); ; {
		f, err := d.gather(ctx, conn)
		if err != nil {
			return nil, fmt.Errorf("draw the account: %w", err)
		}
		account := &Account{Postgres: d.version, Load: d.cfg.Load, Seed: d.cfg.Seed, Sections: settle(f)}
		if account.Holds() || time.Now().After(late) {
			return account, nil
		}
		if err := pause(ctx, settleInterval); err != nil {
			return account, err
		}
	}
}
