package scenario_test

import (
	"net/http"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// OPS-06: the standby is gone that delivery waits for. The stream looks well, and
// brings nothing; the relay says so, and goes on once the setting is mended.
// Servers before 17 wait for nobody.
func TestStandbyGate_IsTold(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	if !p.failover {
		return
	}
	p.Env["RELAY_CHECK_INTERVAL"] = "1s"
	r := process(t, p.World, nil)
	h := examine(t, r)
	p.Insert(scenario.Batch("before", 5, "a", "")...)
	p.AwaitAccepted()
	pgtest.Eventually(t, scenario.Patience, func() error { return h.answers(http.StatusOK, nil) })

	if err := p.standby.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	p.Insert(scenario.Batch("behind", 5, "a", "")...)
	pgtest.Eventually(t, scenario.Patience, func() error {
		return h.answers(http.StatusServiceUnavailable, []string{"fail source", "before standby standby has it"})
	})
	told(t, r, "messages may not come", "which is not connected", "D37")

	p.Exec(`alter system set synchronized_standby_slots = ''`)
	p.Exec(`select pg_reload_conf()`)
	p.Settle()
	pgtest.Eventually(t, scenario.Patience, func() error { return h.answers(http.StatusOK, nil) })
}
