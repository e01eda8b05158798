package doctor_test

import (
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// OPS-04, OPS-14: a real pooler in front of the stream. SQL may go through it.
func TestD06_PgBouncer(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	cfg.Replication = parse(t, pgtest.Pooler(t, url))
	expect(t, cfg, "D06", doctor.Fail, "connection pooler answers", "RELAY_REPLICATION_URL", "direct address")
	cfg.Database, cfg.Replication = cfg.Replication, cfg.Database
	if report := examine(t, cfg); report.Failed > 0 {
		t.Errorf("finds faults: %+v", report.Checks)
	}
}
