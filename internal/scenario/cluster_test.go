package scenario_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay"
)

// restore copies the outbox of one database into another that is migrated and
// empty, as pg_dump and pg_restore do: tables and sequences, no slots.
func restore(t *testing.T, from, to string) {
	t.Helper()
	ctx := context.Background()
	source, target := connectTo(t, from), connectTo(t, to)
	for _, table := range []string{"messages", "dispatched", "deferred", "dead_letters", "queues", "envelopes", "relays", "claims"} {
		var text strings.Builder
		if _, err := source.PgConn().CopyTo(ctx, &text, "copy outbox."+table+" to stdout"); err != nil {
			t.Fatalf("dump %s: %v", table, err)
		}
		if _, err := target.PgConn().CopyFrom(ctx, strings.NewReader(text.String()), "copy outbox."+table+" from stdin"); err != nil {
			t.Fatalf("restore %s: %v", table, err)
		}
	}
	if _, err := target.Exec(ctx, `
		select setval('outbox.messages_id_seq', (select max(id) from outbox.messages)),
			setval('outbox.deferred_position_seq', (select coalesce(max(position), 1) from outbox.deferred))`); err != nil {
		t.Fatalf("restore the sequences: %v", err)
	}
}

func connectTo(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// linesWith are the lines of the log that hold a text.
func linesWith(p *relaybin.Process, text string) (lines []relaybin.Line) {
	for _, line := range p.Log().Lines() {
		if strings.Contains(line.Text, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// A database that was restored into another cluster: the relay makes no slot
// and sends nothing there until an operator adopts it, and then goes on without
// a restart.
func TestCluster_AnotherOneIsHeldUntilItIsAdopted(t *testing.T) {
	t.Parallel()
	original := scenario.New(t)
	messages := scenario.Batch("m", 30, "a", "b", "")
	p := process(t, original, nil)
	original.Insert(messages[:20]...)
	original.Settle()
	terminate(t, p)
	p.AwaitExit(t, 0)
	original.Insert(messages[20:]...) // in the dump, and without outcome

	copied := scenario.On(t, pgtest.New(t).Migrated(t))
	restore(t, original.URL, copied.URL)
	copied.Env["RELAY_SLOT"] = original.Env["RELAY_SLOT"]
	p = relaybin.Run(t, copied.Env, "run")
	const told = "this is another cluster"
	pgtest.Eventually(t, scenario.Patience, func() error {
		if len(linesWith(p, told)) == 0 {
			return fmt.Errorf("no line %q", told)
		}
		return nil
	})
	line := linesWith(p, told)[0]
	if line.Level() != "error" || !strings.Contains(line.Text, "outbox-relay adopt") {
		t.Errorf("the line is no error with a hint: %s", line.Text)
	}
	if text := verb(t, copied, 0, "status"); !strings.Contains(text, "dispatching is held") {
		t.Errorf("status does not tell:\n%s", text)
	}
	if text := verb(t, copied, 0, "adopt"); !strings.Contains(text, "10 messages without outcome") || !strings.Contains(text, "--yes") {
		t.Errorf("adopt does not show what would be sent:\n%s", text)
	}
	// The relay looks again every two seconds, and says nothing new.
	scenario.Throughout(t, 5*time.Second, func() error {
		if slots := copied.Count(`select count(*) from pg_replication_slots`); slots != 0 {
			return fmt.Errorf("a slot was made")
		}
		if n := len(copied.Published()); n != 0 {
			return fmt.Errorf("%d requests were sent", n)
		}
		if n := len(linesWith(p, told)); n != 1 {
			return fmt.Errorf("told %d times", n)
		}
		return nil
	})

	h := patientOf(t, p)
	if state, err := h.status(); err != nil || state.Ready.Phase != relay.Holding || state.Ready.At.Sub(state.Ready.Since) < 5*time.Second {
		t.Errorf("/status: %v, %s since %s, and it is %s", err, state.Ready.Phase, state.Ready.Since, state.Ready.At)
	}

	second := relaybin.Run(t, copied.Env, "run")
	pgtest.Eventually(t, scenario.Patience, func() error {
		if len(linesWith(second, told)) == 0 {
			return fmt.Errorf("no line %q", told)
		}
		return nil
	})
	terminate(t, second)
	second.AwaitExit(t, 0)
	if len(linesWith(second, "stopped while dispatching was held")) != 1 {
		t.Error("the second relay does not say at its end that it was held")
	}

	verb(t, copied, 0, "adopt", "--yes")
	adopted := time.Now()
	p.AwaitLog(t, "session began")
	if took := time.Since(adopted); took > 30*time.Second {
		t.Errorf("the relay noticed the adoption after %v", took)
	}
	copied.Committed(messages[20:]...)
	copied.Insert(scenario.Message{Key: "new", OrderingKey: "a"})
	copied.Settle() // and nothing that went out from the original
	if text := verb(t, copied, 0, "status"); strings.Contains(text, "dispatching is held") {
		t.Errorf("status still tells of it:\n%s", text)
	}
}

// A running relay is led to another cluster, whose outbox has never seen a
// relay: what the process remembers holds it, and the SQL form lets it go.
func TestCluster_UnderARunningRelay(t *testing.T) {
	t.Parallel()
	w := scenario.On(t, pgtest.New(t).Migrated(t)).With(map[string]string{"RELAY_RECONNECT_MAX": "500ms"})
	proxy := w.Proxy()
	r := w.Start()
	awaitLife(t, w, "before")
	w.Settle()

	other := scenario.On(t, pgtest.New(t).Migrated(t))
	other.Insert(scenario.Message{Key: "there"})
	address, err := url.Parse(other.URL)
	if err != nil {
		t.Fatal(err)
	}
	rename(t, other, w) // the settings of the relay stay as they are
	t.Cleanup(func() { _ = r.Stop() })
	proxy.Target(address.Host)
	proxy.Reset()
	pgtest.Eventually(t, scenario.Patience, func() error {
		for _, line := range r.Logs().All() {
			if strings.Contains(fmt.Sprint(line.ContextMap()["error"]), "another cluster") {
				return nil
			}
		}
		return fmt.Errorf("the relay goes on")
	})
	if n := other.Count(`select count(*) from pg_replication_slots`); n != 0 {
		t.Error("a slot was made on the other cluster")
	}
	other.Exec(`
		insert into outbox.relays (slot, system_identifier, timeline, adopted_at)
		select $1, system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int, now()
		from pg_control_system()`, w.Env["RELAY_SLOT"])
	w.AwaitRequest("there")
	if n := times(r, "slot lost, a new one takes its place"); n > 0 {
		t.Error("a false alarm: that cluster never had the slot")
	}
	if err := r.Alive(); err != nil {
		t.Error(err)
	}
}

// rename gives a world's database the name of another's until the test's end.
func rename(t *testing.T, w, like *scenario.World) {
	t.Helper()
	ctx := context.Background()
	from, to := w.Conn.Config().Database, like.Conn.Config().Database
	_ = w.Conn.Close(ctx)
	address, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.Path = "/postgres"
	conn := connectTo(t, address.String())
	if _, err := conn.Exec(ctx, fmt.Sprintf("alter database %s rename to %s", from, to)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.Conn.Close(ctx)
		if _, err := conn.Exec(ctx, fmt.Sprintf("alter database %s rename to %s", to, from)); err != nil {
			t.Error(err)
		}
	})
	address.Path = "/" + to
	w.URL = address.String()
	w.Reconnect()
}

// A slot that somebody moved forward while no relay ran: an alarm with both
// positions, and nothing is lost. A slot that a relay has left is no alarm,
// however much other WAL came by.
func TestSlotMoved_IsTold(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_SWEEP_INTERVAL": "1s"})
	const told = "slot was moved by somebody else"
	for range 3 {
		p := process(t, w, nil)
		w.Insert(scenario.Message{Key: fmt.Sprintf("before-%d", len(w.Keys()))})
		w.Settle()
		w.Exec(`create table if not exists noise (n int)`)
		w.Exec(`insert into noise select generate_series(1, 1000)`)
		w.AwaitSlot()
		terminate(t, p)
		p.AwaitExit(t, 0)
		if lines := linesWith(p, told); len(lines) > 0 {
			t.Errorf("a false alarm: %s", lines[0].Text)
		}
	}
	w.Insert(scenario.Batch("m", 5, "a")...)
	w.Exec(`select pg_replication_slot_advance($1, pg_current_wal_lsn())`, w.Env["RELAY_SLOT"])
	p := process(t, w, nil)
	w.Settle()
	lines := linesWith(p, told)
	if len(lines) != 1 || lines[0].Level() != "error" || lines[0].Fields["lsn"] == nil || lines[0].Fields["recorded_lsn"] == nil {
		t.Errorf("the alarm is %v", lines)
	}
	p.AwaitLog(t, "messages recovered that the stream did not show")
	if n := w.Count(`select slot_moves from outbox.relays`); n != 1 {
		t.Errorf("the move was counted %d times, want once", n)
	}
	kill(t, p)
	p = process(t, w, nil)
	if lines := linesWith(p, told); len(lines) > 0 {
		t.Errorf("a false alarm after a crash: %s", lines[0].Text)
	}
}
