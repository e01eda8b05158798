package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func query[T any](t *testing.T, url, sql string, args ...any) (value T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func makeSlot(t *testing.T, url, name, plugin string) {
	t.Helper()
	execute(t, url, "select pg_create_logical_replication_slot('"+name+"', '"+plugin+"')")
}

// noteReconciled makes the row that a relay leaves behind.
func noteReconciled(t *testing.T, url, slot string) {
	t.Helper()
	execute(t, url, "insert into outbox.relays (slot, epoch, reconciled_at) values ('"+slot+"', 1, now())")
}

// expectReconcile checks that the next relay will look through the table.
func expectReconcile(t *testing.T, url, slot string) {
	t.Helper()
	if !query[bool](t, url, "select reconciled_at is null from outbox.relays where slot = $1", slot) {
		t.Error("the next start of the relay would not look for messages that the WAL did not show")
	}
}

func TestD09_NotYetThere(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	report := examine(t, cfg)
	if report.Failed > 0 {
		t.Errorf("a relay that has not run yet is no fault: %+v", report.Checks)
	}
	if r := result(t, report, "D10"); r.Status != doctor.Skip {
		t.Errorf("D10 is %+v", r)
	}
	mend(t, url, expect(t, cfg, "D09", doctor.Warn, cfg.Slot, "does not exist yet"))
	t.Cleanup(func() { dropSlot(t, url, cfg.Slot) })
	expect(t, cfg, "D09", doctor.Pass)
	expect(t, cfg, "D10", doctor.Pass)
}

func dropSlot(t *testing.T, url, slot string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), "select pg_drop_replication_slot($1)", slot); err != nil {
		t.Error(err)
	}
}

// OUT-04: a failover did not bring the slot along.
func TestD09_Gone(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	noteReconciled(t, url, cfg.Slot)
	mend(t, url, expect(t, cfg, "D09", doctor.Fail, cfg.Slot, "is gone"))
	expect(t, cfg, "D09", doctor.Pass)
	expectReconcile(t, url, cfg.Slot)
}

// A slot that is being made waits for whoever writes anywhere on the server, and
// looks like one in use.
func TestD09_BeingMade(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t) // a slot is made here when nobody else writes
	url := cluster.Migrated(t)
	cfg := newConfig(t, url)
	noteReconciled(t, url, cfg.Slot)
	execute(t, cluster.URL("postgres"), "create database billing")
	execute(t, cluster.URL("billing"), "begin; create table a (); prepare transaction 'settlement-4711'")
	maker, err := pgx.ConnectConfig(t.Context(), cfg.Database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = maker.Close(context.Background()) })
	made := make(chan error, 1)
	go func() {
		_, err := maker.Exec(context.Background(), "select pg_create_logical_replication_slot($1, 'pgoutput')", cfg.Slot)
		made <- err
	}()
	pgtest.Eventually(t, 20*time.Second, func() error {
		if !query[bool](t, url, "select exists (select from pg_locks where pid = $1 and not granted)", maker.PgConn().PID()) {
			return errors.New("the slot is not being made yet")
		}
		return nil
	})
	r := expect(t, cfg, "D09", doctor.Fail, fmt.Sprintf("is being made by pid %d", maker.PgConn().PID()),
		"waits for prepared transaction 'settlement-4711' (database billing, role postgres), open for ",
		"commit prepared 'settlement-4711'", "rollback prepared 'settlement-4711'", "RELAY_MODE=poll")
	if r.SQL != "" {
		t.Errorf("decides for the owner: %s", r.SQL)
	}
	for _, id := range []string{"D10", "D11", "D12", "D13", "D19", "D24"} {
		expect(t, cfg, id, doctor.Skip)
	}

	writer, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = writer.Close(context.Background()) })
	if _, err := writer.Exec(t.Context(), "begin; create table b ()"); err != nil {
		t.Fatal(err)
	}
	execute(t, cluster.URL("billing"), "rollback prepared 'settlement-4711'")
	waits := fmt.Sprintf("waits for pid %d", writer.PgConn().PID())
	pgtest.Eventually(t, 20*time.Second, func() error {
		if r = result(t, examine(t, cfg), "D09"); !strings.Contains(r.Observed, waits) {
			return errors.New(r.Observed)
		}
		return nil
	})
	mend(t, url, r)
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	expect(t, cfg, "D09", doctor.Pass)
}

// OPS-05: the slot belongs to something else.
func TestD09_Foreign(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	elsewhere := pgtest.Database(t)

	t.Run("plugin", func(t *testing.T) {
		cfg := newConfig(t, url)
		cfg.Slot += "_plugin"
		makeSlot(t, url, cfg.Slot, "test_decoding")
		expectForeign(t, cfg, `plugin "test_decoding"`)
	})
	t.Run("database", func(t *testing.T) {
		cfg := newConfig(t, url)
		cfg.Slot += "_database"
		makeSlot(t, elsewhere, cfg.Slot, "pgoutput")
		expectForeign(t, cfg, parse(t, elsewhere).Database)
	})
	t.Run("physical", func(t *testing.T) {
		cfg := newConfig(t, url)
		cfg.Slot += "_physical"
		execute(t, url, "select pg_create_physical_replication_slot('"+cfg.Slot+"')")
		t.Cleanup(func() { dropSlot(t, url, cfg.Slot) })
		expectForeign(t, cfg, "physical")
	})
	t.Run("temporary", func(t *testing.T) {
		cfg := newConfig(t, url)
		cfg.Slot += "_temporary"
		conn, err := pgx.ConnectConfig(t.Context(), cfg.Database)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(t.Context(), "select pg_create_logical_replication_slot($1, 'pgoutput', true)", cfg.Slot); err != nil {
			t.Fatal(err)
		}
		expectForeign(t, cfg, "temporary")
	})
}

// expectForeign checks that a foreign slot is named, and that nothing is
// printed that would harm its owner.
func expectForeign(t *testing.T, cfg doctor.Config, text string) {
	t.Helper()
	r := expect(t, cfg, "D09", doctor.Fail, cfg.Slot, text, "RELAY_SLOT")
	if r.SQL != "" {
		t.Errorf("prints SQL for a slot of somebody else: %s", r.SQL)
	}
	expect(t, cfg, "D10", doctor.Skip, "D09 failed")
}

// OUT-05: the server threw away WAL that the slot needed.
func TestD10_Lost(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{
		"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB",
	}})
	url := cluster.URL("postgres")
	migrate(t, url)
	cfg := newConfig(t, url)
	makeSlot(t, url, cfg.Slot, "pgoutput")
	noteReconciled(t, url, cfg.Slot)
	pgtest.Eventually(t, 30*time.Second, func() error {
		execute(t, url, "select pg_logical_emit_message(false, '', repeat('x', 1000000))", "select pg_switch_wal()", "checkpoint")
		if query[string](t, url, "select wal_status from pg_replication_slots") != "lost" {
			return errors.New("the slot is not lost yet")
		}
		return nil
	})
	mend(t, url, expect(t, cfg, "D10", doctor.Fail, "lost", "RELAY_SLOT_LOST"))
	expect(t, cfg, "D10", doctor.Pass)
	expectReconcile(t, url, cfg.Slot)
}

// SCH-03: the publication was dropped and made again while the slot lived. Up to
// 17 the slot cannot be read past what was written in between.
func TestD24_OlderThanThePublication(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	expect(t, cfg, "D24", doctor.Skip)
	makeSlot(t, url, cfg.Slot, "pgoutput")
	noteReconciled(t, url, cfg.Slot)
	message := "insert into outbox.messages (key, queue, payload) values (gen_random_uuid()::text, 'orders', '{}')"
	execute(t, url, message)
	expect(t, cfg, "D24", doctor.Pass)
	execute(t, url, "drop publication outbox_relay", message,
		"create publication outbox_relay for table outbox.messages with (publish = 'insert', publish_via_partition_root = true)")
	if query[int](t, url, "select current_setting('server_version_num')::int") >= 180000 {
		expect(t, cfg, "D24", doctor.Pass, "passes over")
		return
	}
	mend(t, url, expect(t, cfg, "D24", doctor.Fail, cfg.Slot, "older than publication", "outbox-relay slot recreate --yes", "Nothing is lost"))
	execute(t, url, message)
	expect(t, cfg, "D24", doctor.Pass, "can be read")
	expectReconcile(t, url, cfg.Slot)
}

// OPS-09: slots that nobody reads any more are pointed out, those of others not.
func TestD39_SlotsOfEarlierNames(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	expect(t, cfg, "D39", doctor.Pass)
	for _, slot := range []string{cfg.Slot, cfg.Slot + "_old", cfg.Slot + "_of_a_subscription"} {
		makeSlot(t, url, slot, "pgoutput")
	}
	expect(t, cfg, "D39", doctor.Pass)
	noteReconciled(t, url, cfg.Slot)
	noteReconciled(t, url, cfg.Slot+"_old")
	mend(t, url, expect(t, cfg, "D39", doctor.Warn, `_old" (`, "keep WAL"))
	expect(t, cfg, "D39", doctor.Pass)
	if n := query[int](t, url, "select count(*)::int from pg_replication_slots where database = current_database()"); n != 2 {
		t.Errorf("%d slots are left, want 2", n)
	}
}
