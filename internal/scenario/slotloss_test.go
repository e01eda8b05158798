package scenario_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// OUT-05: a message without outcome holds the slot back while others write more
// than the server may keep for it. The relay says so before the next checkpoint
// takes the slot, once and with what to do. Then the slot is lost, from Postgres 18 on because nobody read it for too long, and the next
// relay delivers what it would have shown.
func TestOUT05_ToldBeforeTheSlotIsLost(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{
		"max_slot_wal_keep_size": "16MB", "max_wal_size": "1GB", "min_wal_size": "32MB", "checkpoint_timeout": "1h",
	}})
	w := scenario.On(t, cluster.Migrated(t)).With(map[string]string{
		"RELAY_CHECK_INTERVAL": "200ms", "RELAY_STATUS_INTERVAL": "200ms", "INFRAI_REQUEST_TIMEOUT": "10m", "RELAY_DEFER_AFTER": "10m",
	})
	stuck := newValve()
	w.Before(stuck.front)
	p := process(t, w, nil)
	h := patientOf(t, p)
	w.Insert(scenario.Message{Key: "first", OrderingKey: "a"})
	stuck.await(t, 1)
	const warning = "will be lost at the next checkpoint"
	if text := p.Log().Text(); strings.Contains(text, warning) {
		t.Errorf("a false alarm: %s", text)
	}
	w.Exec(`create table noise (filler text)`)
	pgtest.Eventually(t, scenario.Patience, func() error {
		w.Exec(`insert into noise select repeat(md5(i::text), 300) from generate_series(1, 2000) i`)
		w.Exec(`select pg_logical_emit_message(false, 'noise', repeat('x', 4000000))`)
		return walStatus(t, w, "unreserved")
	})
	told(t, p, "messages may not come", warning, "raise max_slot_wal_keep_size")
	pgtest.Eventually(t, scenario.Patience, func() error { return h.answers(http.StatusServiceUnavailable, []string{warning}) })
	close(stuck.open)
	w.Settle()
	if n := strings.Count(p.Log().Text(), warning); n != 1 {
		t.Errorf("told %d times:\n%s", n, p.Log().Text())
	}

	terminate(t, p)
	p.AwaitExit(t, 0)
	w.Insert(scenario.Batch("lost", 20, "a", "b", "")...)
	reason := loseSlot(t, w)
	w.Fault(emulator.Fault{Route: "queue.publish", Every: 5, Status: http.StatusServiceUnavailable})
	p = process(t, w, nil)
	told(t, p, "slot lost, a new one takes its place", reason)
	patientOf(t, p).lostSlots(1)
	w.Insert(scenario.Batch("after", 20, "a", "b", "")...)
	w.Settle()
}

// walStatus returns nil when the server says this of the world's slot.
func walStatus(t *testing.T, w *scenario.World, want string) error {
	t.Helper()
	var got string
	err := w.Conn.QueryRow(t.Context(), `select wal_status from pg_replication_slots where slot_name = $1`, w.Env["RELAY_SLOT"]).Scan(&got)
	if err == nil && got != want {
		err = fmt.Errorf("the slot is %s, not %s", got, want)
	}
	return err
}

// loseSlot has the server give up a slot that nobody reads, and returns what the
// reason is called.
func loseSlot(t *testing.T, w *scenario.World) (reason string) {
	t.Helper()
	if w.Count(`select current_setting('server_version_num')::int`) < 180000 {
		invalidate(t, w)
		return "the server has removed WAL"
	}
	w.Exec(`alter system set max_slot_wal_keep_size = -1`)
	w.Exec(`alter system set idle_replication_slot_timeout = '1s'`)
	w.Exec(`select pg_reload_conf()`)
	// A new session has what the postmaster has read, and has told the checkpointer.
	pgtest.Eventually(t, scenario.Patience, func() error {
		var unlimited bool
		err := connectTo(t, w.URL).QueryRow(t.Context(), `select current_setting('max_slot_wal_keep_size') = '-1'`).Scan(&unlimited)
		if err == nil && !unlimited {
			err = errors.New("the settings are not loaded")
		}
		return err
	})
	pgtest.Eventually(t, scenario.Patience, func() error {
		w.Exec(`insert into noise values ('')`)
		w.Exec(`checkpoint`)
		return walStatus(t, w, "lost")
	})
	return "idle_timeout"
}
