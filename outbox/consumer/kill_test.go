package consumer_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// The environment of a consumer in a process of its own.
const (
	childDatabase = "CONSUMER_TEST_DATABASE"
	childQueue    = "CONSUMER_TEST_QUEUE"
)

// consumeAsChild is the process that gets killed. It says on its output when a
// handler has done its work, before the commit.
func consumeAsChild(out io.Writer) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv(childDatabase))
	if err != nil {
		return err
	}
	defer pool.Close()
	c := &consumer.Consumer{Name: "books", DB: pool, Handler: func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		err := book(ctx, tx, m)
		fmt.Fprintln(out, m.ID)
		return err
	}}
	queue := consumer.Queue{BaseURL: os.Getenv(childQueue), Name: "books", APIKey: func() string { return "key" }}
	loop, err := consumer.NewLoop(c, queue, consumer.Plain(consumer.Field("event_id")), quickWithShortLease())
	if err != nil {
		return err
	}
	return loop.Run(ctx)
}

func quickWithShortLease() consumer.LoopConfig {
	config := quick()
	config.Lease, config.HandlerTimeout = time.Minute, 30*time.Second
	return config
}

// Consumers are killed in the middle of their work, between the business write
// and the commit, the commit and the ack, or wherever it hits. Their leases end,
// others take over, and each event is booked once.
func TestLoop_ProcessIsKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *emulator.Settings) { s.MaxRetries = 1000 }) // the test's clock ends leases of the living too
	const events, each = 60, 20
	// Killed after so many handlers did their work. Each finds new events, however
	// far the one before it has come until then.
	for i, works := range []int{1, 7, each} {
		for n := range 2 * each {
			r.publish(fmt.Sprintf("e-%d", i*each+n%each))
		}
		killChild(t, r, works)
		if err := r.server.Clock().Advance(time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	r.run(r.once(book), quickWithShortLease())
	pgtest.Eventually(t, patience, func() error {
		if err := r.server.Clock().Advance(time.Second); err != nil {
			return err
		}
		if got := r.server.Counters().Acked; got != 2*events {
			return fmt.Errorf("%d acked, want %d", got, 2*events)
		}
		return nil
	})
	r.want(events, events)
}

// killChild starts a consumer and kills it once it has done some work.
func killChild(t *testing.T, r rig, works int) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childDatabase+"="+r.pool.Config().ConnString(), childQueue+"="+r.url)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range works {
		if !lines.Scan() {
			t.Fatalf("the consumer ended by itself: %v", lines.Err())
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it says "killed"
}
