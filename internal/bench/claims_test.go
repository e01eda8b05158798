package bench_test

import (
	"context"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/bench"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
)

// figures are the results by their names.
func figures(t *testing.T, report *bench.Report) map[string]float64 {
	t.Helper()
	figures := map[string]float64{}
	for _, r := range report.Results {
		if r.Median <= 0 {
			t.Errorf("%s is %v %s", r.Name, r.Median, r.Unit)
		}
		figures[r.Name] = r.Median
	}
	return figures
}

// Few claims: whether they can be measured at all, and that each is won once. The
// budget needs many, and a quiet machine.
func TestRunClaims(t *testing.T) {
	t.Parallel()
	program, err := relaybin.BuildPlain()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	report, err := bench.RunClaims(ctx, bench.ClaimsConfig{
		Program: program, Workers: 4, Expired: 2500, Alone: time.Second, Rounds: 1, Least: 1e6,
	})
	if err != nil {
		t.Fatal(err)
	}
	figures(t, report)
	if report.Missed() == nil {
		t.Error("a budget that nobody meets was met")
	}
}

func TestRunEnqueue(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	report, err := bench.RunEnqueue(ctx, bench.EnqueueConfig{Rows: 200, Transactions: 5, Payload: 400, Rounds: 2})
	if err != nil {
		t.Fatal(err)
	}
	f := figures(t, report)
	// WAL does not depend on how busy the machine is.
	if bare, one, hundred := f["enqueue.bare_wal"], f["enqueue.one_wal"], f["enqueue.hundred_wal"]; bare < 400 || one < bare || hundred < bare || one > 3*bare {
		t.Errorf("bytes of WAL a row: %.0f bare, %.0f by Enqueue, %.0f in hundreds", bare, one, hundred)
	}
}

func TestClaimsConfig_Validate(t *testing.T) {
	t.Parallel()
	good := bench.ClaimsConfig{Workers: 1, Expired: 1, Alone: time.Second, Rounds: 1}
	if err := good.Validate(); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for name, change := range map[string]func(*bench.ClaimsConfig){
		"workers": func(c *bench.ClaimsConfig) { c.Workers = 0 }, "expired": func(c *bench.ClaimsConfig) { c.Expired = 0 },
		"alone": func(c *bench.ClaimsConfig) { c.Alone = 0 }, "rounds": func(c *bench.ClaimsConfig) { c.Rounds = 0 },
	} {
		bad := good
		change(&bad)
		if err := bad.Validate(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestEnqueueConfig_Validate(t *testing.T) {
	t.Parallel()
	good := bench.EnqueueConfig{Rows: 100, Transactions: 1, Rounds: 1}
	if err := good.Validate(); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for name, change := range map[string]func(*bench.EnqueueConfig){
		"rows": func(c *bench.EnqueueConfig) { c.Rows = 99 }, "transactions": func(c *bench.EnqueueConfig) { c.Transactions = 0 },
		"rounds": func(c *bench.EnqueueConfig) { c.Rounds = 0 }, "payload": func(c *bench.EnqueueConfig) { c.Payload = 1 << 20 },
	} {
		bad := good
		change(&bad)
		if err := bad.Validate(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
