package doctor_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// One server that is short of everything.
func TestD14_LimitsOfTheServer(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{
		"max_replication_slots": "1", "max_wal_senders": "1", "max_wal_size": "32MB", "min_wal_size": "32MB",
	}})
	url := cluster.URL("postgres")
	migrate(t, url)
	cfg := newConfig(t, url)
	report := examine(t, cfg)
	if report.Failed > 0 {
		t.Errorf("a small server is no fault: %+v", report.Checks)
	}
	mend(t, url, expect(t, cfg, "D14", doctor.Warn, "no limit", "disk"))
	awaitCheck(t, cfg, "D14", doctor.Pass, "10.0 GiB")
	execute(t, url, "alter system set max_slot_wal_keep_size = '40MB'", "select pg_reload_conf()")
	awaitCheck(t, cfg, "D14", doctor.Warn, "below twice max_wal_size")
	execute(t, url, "alter system set max_slot_wal_keep_size = '200MB'", "select pg_reload_conf()")
	awaitCheck(t, cfg, "D14", doctor.Pass, "200.0 MiB")

	mend(t, url, expect(t, cfg, "D17", doctor.Warn, "0 of 1 walsenders", "restart"))
	execute(t, url, "select pg_create_physical_replication_slot('of_a_standby')")
	mend(t, url, expect(t, cfg, "D16", doctor.Fail, "1 of 1 slots", "nobody reads: of_a_standby", "restart"))
	if err := cluster.Restart("fast"); err != nil {
		t.Fatal(err)
	}
	expect(t, cfg, "D16", doctor.Pass)
	expect(t, cfg, "D17", doctor.Pass)

	makeSlot(t, url, cfg.Slot, "pgoutput")
	expect(t, cfg, "D11", doctor.Pass, "reserved")
	expect(t, cfg, "D13", doctor.Pass)
	writeWAL(t, url, cfg.Slot, "extended")
	r := expect(t, cfg, "D11", doctor.Warn, "extended")
	writeMore(t, url, 110<<20)
	expect(t, cfg, "D13", doctor.Warn, "more than half", "200.0 MiB")
	mend(t, url, r)
	awaitCheck(t, cfg, "D13", doctor.Pass)
}

// awaitCheck waits for a setting to be loaded, or for somebody to come or go. On a
// busy machine one look takes seconds.
func awaitCheck(t *testing.T, cfg doctor.Config, id string, status doctor.Status, texts ...string) {
	t.Helper()
	pgtest.Eventually(t, time.Minute, func() error {
		if r := result(t, examine(t, cfg), id); r.Status != status {
			return fmt.Errorf("%s is %s: %s", id, r.Status, r.Observed)
		}
		return nil
	})
	expect(t, cfg, id, status, texts...)
}

// writeWAL writes until the slot has a state.
func writeWAL(t *testing.T, url, slot, state string) {
	t.Helper()
	pgtest.Eventually(t, 30*time.Second, func() error {
		writeMore(t, url, 8<<20)
		if now := query[string](t, url, "select wal_status from pg_replication_slots where slot_name = $1", slot); now != state {
			return errors.New("the slot is " + now)
		}
		return nil
	})
}

// writeMore writes WAL that means nothing.
func writeMore(t *testing.T, url string, bytes int) {
	t.Helper()
	execute(t, url, fmt.Sprintf("select count(pg_logical_emit_message(false, '', repeat('x', 1000000))) from generate_series(1, %d)", bytes/1000000))
}

// The limit of idle slots is one of servers from 18 on.
func TestD15_IdleSlots(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	url := cluster.URL("postgres")
	cfg := newConfig(t, url)
	if query[int](t, url, "select current_setting('server_version_num')::int") < 180000 {
		expect(t, cfg, "D15", doctor.Pass, "drops no idle slots")
		return
	}
	expect(t, cfg, "D15", doctor.Pass, "none")
	execute(t, url, "alter system set idle_replication_slot_timeout = '10min'", "select pg_reload_conf()")
	awaitCheck(t, cfg, "D15", doctor.Warn, "10m0s", "loses its slot")
	mend(t, url, expect(t, cfg, "D15", doctor.Warn))
	awaitCheck(t, cfg, "D15", doctor.Pass, "48h0m0s")
}

// Slots that wait for standbys are ones of servers from 17 on.
func TestD37_StandbyIsGone(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	url := cluster.URL("postgres")
	migrate(t, url)
	cfg := newConfig(t, url)
	expect(t, cfg, "D37", doctor.Pass)
	expect(t, cfg, "D36", doctor.Skip)
	makeSlot(t, url, cfg.Slot, "pgoutput")
	if query[int](t, url, "select current_setting('server_version_num')::int") < 170000 {
		expect(t, cfg, "D36", doctor.Pass, "follow no failover")
		return
	}
	standby, err := cluster.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Close() })
	awaitCheck(t, cfg, "D37", doctor.Pass)
	mend(t, url, expect(t, cfg, "D36", doctor.Warn, "made without failover", "standby"))
	expect(t, cfg, "D36", doctor.Pass, "waits for standby")
	if err := standby.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	awaitCheck(t, cfg, "D37", doctor.Fail, "standby slot standby", "not connected")
	mend(t, url, expect(t, cfg, "D37", doctor.Fail))
	awaitCheck(t, cfg, "D37", doctor.Pass)
	if err := standby.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitCheck(t, cfg, "D36", doctor.Warn, "synchronized_standby_slots is empty")
	mend(t, url, expect(t, cfg, "D36", doctor.Warn))
	awaitCheck(t, cfg, "D36", doctor.Pass)
}
