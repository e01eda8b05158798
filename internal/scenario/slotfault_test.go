package scenario_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// Somebody does something to the slot. In each case every message arrives, one
// line of the log says what happened, and the repair is the documented one.

// watchful are settings under which the relay notices within a second what it
// notices within a minute in production.
func watchful(w *scenario.World) *scenario.World {
	return w.With(map[string]string{
		"RELAY_SWEEP_INTERVAL": "200ms", "RELAY_CHECK_INTERVAL": "200ms", "RELAY_OPERATOR_RETRY": "300ms",
		"RELAY_RECONNECT_MAX": "500ms", "RELAY_LEASE_INTERVAL": "500ms",
	})
}

// loud waits for a line of the log at this level that has all the texts in its
// fields.
func loud(t *testing.T, r *scenario.Relay, level zapcore.Level, message string, texts ...string) {
	t.Helper()
	pgtest.Eventually(t, scenario.Patience, func() error {
		for _, line := range r.Logs().FilterMessage(message).All() {
			if line.Level == level && has(fmt.Sprint(line.ContextMap()), texts) {
				return nil
			}
		}
		return fmt.Errorf("no line %q of level %s with %q", message, level, texts)
	})
}

func has(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// times is how often a line was written.
func times(r *scenario.Relay, message string) int { return r.Logs().FilterMessage(message).Len() }

// verb runs the program with the world's settings, and returns its output.
func verb(t *testing.T, w *scenario.World, code int, arguments ...string) string {
	t.Helper()
	p := relaybin.Run(t, w.Env, arguments...)
	p.AwaitExit(t, code)
	return p.Stdout()
}

// diagnosis is a check of the doctor.
type diagnosis struct{ ID, Status, Observed, Message, Remedy, SQL string }

// doctorSays checks what the doctor finds, and returns the SQL that mends it.
func doctorSays(t *testing.T, w *scenario.World, id, status string, texts ...string) (sql string) {
	t.Helper()
	p := relaybin.Run(t, w.Env, "doctor", "--json")
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	var report struct{ Checks []diagnosis }
	if err := json.Unmarshal([]byte(p.Stdout()), &report); err != nil {
		t.Fatalf("doctor: %v: %s", err, p.Stdout())
	}
	for _, c := range report.Checks {
		if c.ID != id {
			continue
		}
		if c.Status != status || !has(fmt.Sprint(c), texts) {
			t.Errorf("doctor: %s is %+v, want %s with %q", id, c, status, texts)
		}
		return c.SQL
	}
	t.Fatalf("doctor has no check %s", id)
	return ""
}

// statusSays checks the sentence of the status.
func statusSays(t *testing.T, w *scenario.World, text string) {
	t.Helper()
	if got := verb(t, w, 0, "status"); !strings.Contains(got, text) {
		t.Errorf("status says %q, want %q in it", got, text)
	}
}

// script runs statements as an administrator.
func script(t *testing.T, w *scenario.World, sql string) {
	t.Helper()
	if err := w.Conn.PgConn().Exec(context.Background(), sql).Close(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// mend runs the statements of the doctor one after another, as psql does.
func mend(t *testing.T, w *scenario.World, sql string) {
	t.Helper()
	for statement := range strings.SplitSeq(strings.TrimSuffix(sql, ";"), ";\n") {
		w.Exec(statement)
	}
}

// settleApart is Settle for messages that the stream did not show: they come
// when they are found.
func settleApart(w *scenario.World) {
	w.AwaitAccepted()
	w.AwaitMarked()
	w.AwaitSlot()
	w.NoPhantom()
	w.Same()
}

// dropSlotUnder drops the slot while a relay streams from it.
func dropSlotUnder(t *testing.T, w *scenario.World) {
	t.Helper()
	slot := w.Env["RELAY_SLOT"]
	pgtest.Eventually(t, scenario.Patience, func() error {
		_, err := w.Conn.Exec(context.Background(), `select pg_terminate_backend(active_pid) from pg_replication_slots
			where slot_name = $1 and active_pid is not null`, slot)
		if err == nil {
			_, err = w.Conn.Exec(context.Background(), `select pg_drop_replication_slot($1)`, slot)
		}
		return err
	})
}

func TestSlotFault_DroppedUnderTheRunningRelay(t *testing.T) {
	t.Parallel()
	w := watchful(scenario.New(t))
	r := w.Start()
	r.AwaitLog("session began")
	stop := w.Writers(3)
	awaitLife(t, w, "before")
	dropSlotUnder(t, w)
	loud(t, r, zapcore.ErrorLevel, "slot lost, a new one takes its place", "is gone: somebody dropped it", "safe in the table")
	awaitLife(t, w, "after")
	stop()
	w.Settle()
	if n := times(r, "slot lost, a new one takes its place"); n != 1 {
		t.Errorf("the loss is told %d times", n)
	}
}

func TestSlotFault_DroppedWhileNoRelayRuns(t *testing.T) {
	t.Parallel()
	w := watchful(scenario.New(t))
	afterWork(t, w)
	stop := w.Writers(3)
	w.Exec(`select pg_drop_replication_slot($1)`, w.Env["RELAY_SLOT"])
	statusSays(t, w, "is gone and no relay is streaming")
	doctorSays(t, w, "D09", "fail", "is gone", "safe in the table")
	r := w.Start()
	loud(t, r, zapcore.ErrorLevel, "slot lost, a new one takes its place", "is gone: somebody dropped it")
	awaitLife(t, w, "after")
	stop()
	w.Settle()
	doctorSays(t, w, "D09", "pass")
}

// With RELAY_SLOT_LOST=stop a person decides. A relay that runs waits for that;
// one that starts ends, however often.
func TestSlotFault_StopLeavesItToAPerson(t *testing.T) {
	t.Parallel()
	w := watchful(scenario.New(t)).With(map[string]string{"RELAY_SLOT_LOST": "stop"})
	r := w.Start()
	r.AwaitLog("session began")
	stop := w.Writers(2)
	awaitLife(t, w, "before")
	dropSlotUnder(t, w)
	loud(t, r, zapcore.ErrorLevel, "stream cannot be opened, will be tried again", "is gone: somebody dropped it", "slot create")
	for range 2 {
		p := relaybin.Run(t, w.Env, "run")
		p.AwaitExit(t, 12)
		if text := p.Log().Text(); !strings.Contains(text, "is gone") || !strings.Contains(text, "slot create") {
			t.Errorf("the end does not say what to do: %s", text)
		}
	}
	if err := r.Alive(); err != nil {
		t.Fatal(err)
	}
	if n := w.Count(`select count(*) from pg_replication_slots where slot_name = $1`, w.Env["RELAY_SLOT"]); n != 0 {
		t.Fatal("a slot was made")
	}
	mend(t, w, doctorSays(t, w, "D09", "fail", "is gone"))
	awaitLife(t, w, "by-sql")
	dropSlotUnder(t, w)
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := times(r, "stream cannot be opened, will be tried again"); n < 2 {
			return fmt.Errorf("the second loss is not told")
		}
		return nil
	})
	verb(t, w, 0, "slot", "create")
	awaitLife(t, w, "by-verb")
	stop()
	w.Settle()
}

// OUT-05: the server throws WAL away that the slot needs.
func TestSlotFault_Invalidated(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{
		"max_slot_wal_keep_size": "4MB", "max_wal_size": "48MB", "min_wal_size": "32MB", "wal_keep_size": "0",
	}})
	w := watchful(scenario.On(t, cluster.Migrated(t)))
	afterWork(t, w)
	stop := w.Writers(3)
	invalidate(t, w)
	statusSays(t, w, "is lost")
	repair := doctorSays(t, w, "D10", "fail", "is lost", "safe in the table")

	w.Env["RELAY_SLOT_LOST"] = "stop"
	p := relaybin.Run(t, w.Env, "run")
	p.AwaitExit(t, 12)
	if text := p.Log().Text(); !strings.Contains(text, "is lost: the server has removed WAL") || !strings.Contains(text, "slot recreate") {
		t.Errorf("the end does not say what to do: %s", text)
	}
	mend(t, w, repair)
	r := w.Start()
	awaitLife(t, w, "by-hand")
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}

	w.Env["RELAY_SLOT_LOST"] = "recreate"
	invalidate(t, w)
	r = w.Start()
	loud(t, r, zapcore.ErrorLevel, "slot lost, a new one takes its place", "is lost: the server has removed WAL", "safe in the table")
	awaitLife(t, w, "by-itself")
	stop()
	w.Settle()
	doctorSays(t, w, "D10", "pass")
}

// invalidate writes WAL until the server gives the slot up.
func invalidate(t *testing.T, w *scenario.World) {
	t.Helper()
	w.Exec(`create table if not exists noise (filler text)`)
	pgtest.Eventually(t, scenario.Patience, func() error {
		for _, sql := range []string{
			`insert into noise select repeat(md5(i::text), 300) from generate_series(1, 1000) i`, `select pg_switch_wal()`, `checkpoint`,
		} {
			if _, err := w.Conn.Exec(context.Background(), sql); err != nil {
				return err
			}
		}
		var status string
		err := w.Conn.QueryRow(context.Background(), `select wal_status from pg_replication_slots where slot_name = $1`, w.Env["RELAY_SLOT"]).Scan(&status)
		if err == nil && status != "lost" {
			err = fmt.Errorf("the slot is %s, not lost", status)
		}
		return err
	})
}

// CDC-13: somebody moves the slot over messages that nobody has delivered.
func TestSlotFault_AdvancedWhileNoRelayRuns(t *testing.T) {
	t.Parallel()
	w := watchful(scenario.New(t))
	afterWork(t, w)
	stop := w.Writers(3)
	w.Insert(scenario.Batch("skipped", 30, "a", "b")...)
	w.Exec(`select pg_replication_slot_advance($1, pg_current_wal_insert_lsn())`, w.Env["RELAY_SLOT"])
	r := w.Start()
	loud(t, r, zapcore.ErrorLevel, "messages recovered that the stream did not show", "messages")
	w.AwaitRequest("skipped-29")
	awaitLife(t, w, "after")
	stop()
	settleApart(w)
}
