package bench_test

import (
	"context"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/bench"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
)

// A short outage at a low rate: whether it can be measured at all, and that
// nothing is lost. The budgets need the long one, make outage.
func TestRunOutage(t *testing.T) {
	t.Parallel()
	program, err := relaybin.BuildPlain()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	var log relaybin.Log
	report, err := bench.RunOutage(ctx, bench.OutageConfig{
		Program: program, Down: 8 * time.Second, Rate: 80, Transaction: 4, SideRate: 20, Keys: 10, Payload: 400, Burst: 2000,
		Steady: 2 * time.Second, LeastDrain: 0.1, RelayLog: &log,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, log.Text())
	}
	if err := report.Broken(); err != nil {
		t.Errorf("%v: %s", err, report.Example)
	}
	// The rate says nothing here: a drain as short as this one can be over before a
	// busy machine has seen it begin.
	if report.Backlog < 100 || report.Drained == 0 || report.Written == 0 {
		t.Errorf("a backlog of %d, drained in %.1f s, %d bytes of WAL: nothing was down", report.Backlog, report.Drained, report.Written)
	}
}

func TestOutageConfig_Validate(t *testing.T) {
	t.Parallel()
	good := bench.OutageConfig{Down: time.Minute, Rate: 100, Transaction: 1, Keys: 10, Burst: 1000, Steady: 5 * time.Second}
	if err := good.Validate(); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for name, change := range map[string]func(*bench.OutageConfig){
		"rate": func(c *bench.OutageConfig) { c.Rate = 1 }, "transaction": func(c *bench.OutageConfig) { c.Transaction = 0 }, "keys": func(c *bench.OutageConfig) { c.Keys = 0 },
		"burst": func(c *bench.OutageConfig) { c.Burst = 0 }, "down": func(c *bench.OutageConfig) { c.Down = time.Second },
		"steady": func(c *bench.OutageConfig) { c.Steady = 0 },
	} {
		bad := good
		change(&bad)
		if err := bad.Validate(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
