package adoption_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// The polling table comes over and goes back while events are written and a
// relay sends them: in the end each event was either sent or is left to the
// poller, and none is both.
func TestPollingTable_ThereAndBackUnderLoad(t *testing.T) {
	t.Parallel()
	const writers, backlog, sent = 3, 20, 100
	p, w := load(t), scenario.New(t)
	steps := p["From a polling table"]
	exec(t, w.Conn, steps[0])
	exec(t, w.Conn, fmt.Sprintf(`insert into events (topic, aggregate_id, body) select 'orders', 'a', '{}' from generate_series(1, %d)`, backlog))
	exec(t, w.Conn, steps[1])
	stop := write(t, w.URL, writers)
	r := w.Start()
	exec(t, w.Conn, steps[2])
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := len(w.Queue.Accepted("orders")); n < sent {
			return fmt.Errorf("%d messages accepted, want %d", n, sent)
		}
		return nil
	})
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	exec(t, w.Conn, p["Back to the poller"][0])
	stop()

	left := make(map[string]bool)
	for _, key := range column(t, w.Conn, `select 'event-' || id from events where published_at is null`) {
		left[key] = true
	}
	accepted := make(map[string]bool)
	for _, m := range w.Queue.Accepted("orders") {
		accepted[m.Key] = true
		if left[m.Key] {
			t.Errorf("%s was sent, and is left to the poller", m.Key)
		}
	}
	for _, key := range column(t, w.Conn, `select 'event-' || id from events`) {
		if !left[key] && !accepted[key] {
			t.Errorf("%s is lost", key)
		}
	}
	if n := w.Count(`select count(*) from outbox.message_status where state <> 'dispatched'`); n != 0 || len(left) == 0 {
		t.Errorf("%d messages wait for a relay, %d events for the poller; want none, and some", n, len(left))
	}
}

// write inserts events from several sessions until it is stopped.
func write(t *testing.T, url string, writers int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for n := range writers {
		conn := pgtest.Connect(t, url)
		group.Go(func() { insert(ctx, t, conn, n) })
	}
	stop = func() {
		cancel()
		group.Wait()
	}
	t.Cleanup(stop) // before the connections close
	return stop
}

// insert writes one event after the other until ctx ends; none is cut off.
func insert(ctx context.Context, t *testing.T, conn *pgx.Conn, n int) {
	for ctx.Err() == nil {
		_, err := conn.Exec(context.WithoutCancel(ctx),
			`insert into events (topic, aggregate_id, body) values ('orders', $1, '{}')`, fmt.Sprint("writer-", n))
		if err != nil {
			t.Error(err)
			return
		}
	}
}
