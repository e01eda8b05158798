package doctor_test

import (
	"fmt"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func TestD46_AnotherCluster(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	expect(t, cfg, "D46", doctor.Pass, "no relay has run yet")
	const insert = `insert into outbox.relays (slot, system_identifier, timeline) select '%s', system_identifier, 1 from pg_control_system()`
	execute(t, url, fmt.Sprintf(insert, cfg.Slot))
	expect(t, cfg, "D46", doctor.Pass, "on timeline 1")
	execute(t, url, `update outbox.relays set timeline = 2`)
	expect(t, cfg, "D46", doctor.Fail, "older history", "timeline 1, the relay was on 2", "outbox-relay adopt")
	execute(t, url, `update outbox.relays set system_identifier = 4711`)
	expect(t, cfg, "D46", doctor.Fail, "another cluster", "4711", "outbox-relay adopt")

	// A relay makes no slot here, and nobody is to make one for it.
	execute(t, url, `update outbox.relays set reconciled_at = now()`)
	expect(t, cfg, "D09", doctor.Skip, "before this server is adopted: D46")
	makeSlot(t, url, cfg.Slot, "pgoutput")
	expect(t, cfg, "D09", doctor.Pass, "exists")
}
