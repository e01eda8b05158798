package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
)

const (
	latencyRate    = 1000 // messages a second
	latencyWriters = 4
)

// stopwatch is a publisher that notes when each key was accepted.
type stopwatch struct {
	next relay.Publisher

	mu       sync.Mutex
	began    map[string]time.Time // when the commit was sent
	accepted map[string]time.Time
	commits  []time.Duration // how long each COMMIT took
}

// Publish implements relay.Publisher.
func (s *stopwatch) Publish(ctx context.Context, row *outbox.Row) (relay.Receipt, error) {
	receipt, err := s.next.Publish(ctx, row)
	if now := time.Now(); err == nil {
		s.mu.Lock()
		s.accepted[row.Key] = now
		s.mu.Unlock()
	}
	return receipt, err
}

func (s *stopwatch) committing(key string) {
	now := time.Now()
	s.mu.Lock()
	s.began[key] = now
	s.mu.Unlock()
}

func (s *stopwatch) committed(took time.Duration) {
	s.mu.Lock()
	s.commits = append(s.commits, took)
	s.mu.Unlock()
}

// waits are the times from commit to acceptance, sorted.
func (s *stopwatch) waits() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := make([]time.Duration, 0, len(s.began))
	for key, began := range s.began {
		if accepted, ok := s.accepted[key]; ok {
			waits = append(waits, accepted.Sub(began))
		}
	}
	slices.Sort(waits)
	return waits
}

// measureLatency takes the time from sending COMMIT to the queue's acceptance
// at 1,000 single-message transactions a second.
func measureLatency(ctx context.Context, r *rig) ([]Result, error) {
	sink, err := startChild(ctx, nil, true, "bench", "sink")
	if err != nil {
		return nil, err
	}
	defer sink.stop()
	var half, most figures
	for run := range r.cfg.Runs {
		waits, err := r.latencies(ctx, sink.line, run)
		if err != nil {
			return nil, err
		}
		p50, p99 := waits[len(waits)/2], waits[len(waits)*99/100]
		half, most = append(half, milliseconds(p50)), append(most, milliseconds(p99))
		r.say("latency %d/%d: %d messages, p50 %s, p99 %s", run+1, r.cfg.Runs, len(waits), p50, p99)
	}
	return []Result{
		half.result("latency.p50", "commit to accepted at 1,000/s, median", "ms").below(1),
		most.result("latency.p99", "commit to accepted at 1,000/s, 99th percentile", "ms").below(5),
	}, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (r *rig) latencies(ctx context.Context, url string, run int) ([]time.Duration, error) {
	slot := "bench_latency_" + strconv.Itoa(run)
	cfg, err := r.settings(ctx, slot, map[string]string{"INFRAI_BASE_URL": url})
	if err != nil {
		return nil, err
	}
	if err := r.exec(ctx, `truncate outbox.messages, outbox.dispatched, outbox.deferred, outbox.dead_letters`); err != nil {
		return nil, err
	}
	r.filled = 0
	publisher, err := infrai.New(cfg.Infrai, zap.NewNop())
	if err != nil {
		return nil, err
	}
	defer publisher.Close()
	watch := &stopwatch{next: publisher, began: map[string]time.Time{}, accepted: map[string]time.Time{}}
	source := cdc.New(cfg.CDC, cfg.Database(), cfg.Replication(), r.cfg.Log)
	moving := relay.New(cfg.Relay, cfg.Database(), source, watch, r.cfg.Log)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- moving.Run(running) }()

	err = r.writeSteadily(ctx, watch)
	if err == nil {
		err = watch.await(ctx)
	}
	stop()
	err = errors.Join(err, <-ended)
	if err != nil {
		return nil, err
	}
	slices.Sort(watch.commits)
	n := len(watch.commits)
	r.say("latency: COMMIT alone took %s in the median, %s at the 99th percentile", watch.commits[n/2], watch.commits[n*99/100])
	return watch.waits(), r.dropSlot(ctx, slot)
}

// await waits until every committed message is accepted.
func (s *stopwatch) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		s.mu.Lock()
		left := len(s.began) - len(s.accepted)
		s.mu.Unlock()
		if left <= 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d messages were not accepted: %w", left, ctx.Err())
		}
	}
}

// writeSteadily commits single messages at the rate, from several connections.
// The first second warms up and is not counted.
func (r *rig) writeSteadily(ctx context.Context, watch *stopwatch) error {
	var group sync.WaitGroup
	failed := make([]error, latencyWriters)
	for w := range latencyWriters {
		group.Go(func() { failed[w] = r.writeFrom(ctx, w, watch) })
	}
	group.Wait()
	return errors.Join(failed...)
}

func (r *rig) writeFrom(ctx context.Context, writer int, watch *stopwatch) error {
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	pace := time.NewTicker(time.Second * latencyWriters / latencyRate)
	defer pace.Stop()
	began := time.Now()
	for n := 0; time.Since(began) < r.cfg.Latency+time.Second; n++ {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		key := fmt.Sprintf("latency-%d-%d", writer, n)
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `insert into outbox.messages (key, queue, ordering_key, payload)
			values ($1, 'bench', $2, jsonb_build_object('n', $3::int, 'fill', repeat('x', 380)))`,
			key, "k"+strconv.Itoa(n%1000), n)
		if err != nil {
			return err
		}
		if time.Since(began) > time.Second {
			watch.committing(key)
		}
		sent := time.Now()
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		watch.committed(time.Since(sent))
	}
	return nil
}
