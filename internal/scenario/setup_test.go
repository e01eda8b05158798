package scenario_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// awaitLines waits until a process has written that many lines.
func awaitLines(t *testing.T, p *relaybin.Process, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), scenario.Patience)
	defer cancel()
	if _, _, err := p.Log().Await(ctx, n-1, func(relaybin.Line) bool { return true }); err != nil {
		t.Fatalf("line %d: %v", n, err)
	}
}

// SCH-04, OPS-13: the first start on a fresh database, while applications write
// without pause, killed at random moments of its set-up. Everything that was
// committed is delivered, also what was there before the slot.
func TestSCH04_FirstStartUnderLoad(t *testing.T) {
	t.Parallel()
	seeds := seeded(t)
	for round := range 5 {
		random := rand.New(rand.NewPCG(seeds.Uint64(), 0))
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			w := scenario.New(t)
			w.Insert(scenario.Batch("before", 100, "a", "b", "")...)
			stop := w.Writers(5)
			// The lines are: starting, making the slot, slot created, slot
			// acquired, reconciled, session began.
			for _, lines := range []int{1 + random.IntN(6), 1 + random.IntN(4), 1 + random.IntN(3)} {
				p := relaybin.Run(t, w.Env, "run")
				awaitLines(t, p, lines)
				kill(t, p)
			}
			p := process(t, w, nil)
			w.Insert(scenario.Message{Key: "at-work"})
			w.AwaitRequest("at-work")
			stop()
			w.Settle()
			for _, line := range p.Log().Lines() {
				if line.Level() == "error" && !strings.Contains(line.Text, "the relay has died again and again") { // as it has
					t.Errorf("an error of the last start: %s", line.Text)
				}
			}
		})
	}
}

// SCH-04: the migration, killed at random moments, is there as a whole or not
// at all, and the next one completes it.
func TestSCH04_MigrationIsKilled(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	url := pgtest.Database(t)
	env := map[string]string{"DATABASE_URL": url, "RELAY_PUBLICATION": "outbox_relay"}
	for range 6 {
		p := relaybin.Run(t, env, "migrate", "up")
		select {
		case <-time.After(time.Duration(random.IntN(150)) * time.Millisecond):
		case <-p.Done():
		}
		kill(t, p)
	}
	relaybin.Run(t, env, "migrate", "up").AwaitExit(t, 0)
	relaybin.Run(t, env, "migrate", "status").AwaitExit(t, 0)
	w := scenario.On(t, url)
	w.Insert(scenario.Batch("m", 20, "a", "")...)
	process(t, w, nil)
	w.Settle()
}

// SCH-04: a commit that is in the WAL before the slot begins, and that nobody can
// see yet when the relay looks at the table: with synchronous replication it
// waits in between for a standby. Neither the slot nor the first look shows it.
func TestSCH04_CommittedAndNotYetVisible(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	w := scenario.On(t, cluster.Migrated(t)).With(map[string]string{"RELAY_SWEEP_INTERVAL": "1s"})
	ctx := t.Context()
	local := func() *pgx.Conn {
		conn := w.Connect()
		if _, err := conn.Exec(ctx, `set synchronous_commit = local`); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	w.Exec(`set synchronous_commit = local`)
	w.Exec(`alter system set synchronous_standby_names = 'nobody'`)
	w.Exec(`select pg_reload_conf()`)
	t.Cleanup(func() { // or the database could not be dropped
		w.Exec(`alter system reset synchronous_standby_names`)
		w.Exec(`select pg_reload_conf()`)
	})
	waiting := func(what, condition string, args ...any) {
		t.Helper()
		pgtest.Eventually(t, scenario.Patience, func() error {
			if w.Count(`select count(*) from pg_stat_activity where `+condition, args...) == 0 {
				return fmt.Errorf("%s does not wait", what)
			}
			return nil
		})
	}
	begin := func(key string) pgx.Tx {
		tx, err := local().Begin(ctx)
		if err == nil {
			err = scenario.Write(ctx, tx, scenario.Message{Key: key})
		}
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	commit := func(tx pgx.Tx, key string) {
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		w.Committed(scenario.Message{Key: key})
	}
	const creation = `query like '%pg_create_logical_replication_slot%' and $1::int = any (pg_blocking_pids(pid))`

	// The slot is made in two steps; each waits for who was open at its start.
	first := begin("first")
	r := w.Start()
	r.AwaitLog("slot creation waits for an open transaction")
	waiting("the first step", creation, first.Conn().PgConn().PID())
	second := begin("second")
	commit(first, "first")
	waiting("the second step", creation, second.Conn().PgConn().PID())
	hidden := w.Connect()
	done := make(chan error)
	go func() { done <- scenario.Write(context.Background(), hidden, scenario.Message{Key: "hidden"}) }()
	waiting("the commit", `pid = $1 and wait_event = 'SyncRep'`, hidden.PgConn().PID())
	commit(second, "second")

	r.AwaitLog("session began")
	w.Insert(scenario.Message{Key: "after"})
	w.AwaitAccepted()
	w.Exec(`select pg_cancel_backend($1)`, hidden.PgConn().PID()) // the wait, not the commit
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.Committed(scenario.Message{Key: "hidden"})
	w.Settle()
}

// SCH-10: numbers arrive with the digits that Postgres prints.
func TestSCH10_NumbersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	payloads := []string{
		`{"big": 1234567890123456789012345678901234567890, "f": 1.10, "e": 1e400, "deep": [{"n": -0.00000000000000000001}]}`,
		`{"a": 9007199254740993, "b": 18446744073709551616, "c": 0.1e-7, "d": -0, "e": 1E5, "f": 100.000, "g": 3.141592653589793238462643383279}`,
		`{"small": 1e-400, "zero": 0.0, "one": 1.0, "text": "1.10"}`,
	}
	r := w.Start()
	r.AwaitLog("session began") // the first from the WAL, the rest from the table
	for i, payload := range payloads {
		w.Insert(scenario.Message{Key: fmt.Sprintf("live-%d", i), Payload: payload})
	}
	w.Settle()
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	w.Exec(`select pg_drop_replication_slot($1)`, w.Env["RELAY_SLOT"])
	for i, payload := range payloads {
		w.Insert(scenario.Message{Key: fmt.Sprintf("table-%d", i), Payload: payload})
	}
	w.Start()
	w.Settle()
	for _, e := range w.Published() {
		var body struct {
			Payload map[string]json.RawMessage `json:"payload"`
		}
		if err := json.Unmarshal(e.Body, &body); err != nil {
			t.Fatalf("%s: %v", e.Key, err)
		}
		rows, err := w.Conn.Query(t.Context(), `select m.key, m.value::text from outbox.messages o, jsonb_each(o.payload) m where o.key = $1`, e.Key)
		if err != nil {
			t.Fatal(err)
		}
		members := 0
		for rows.Next() {
			var name, want string
			if err := rows.Scan(&name, &want); err != nil {
				t.Fatal(err)
			}
			members++
			if got := string(body.Payload[name]); got != strings.ReplaceAll(want, " ", "") {
				t.Errorf("%s: member %s arrived as %s, Postgres prints %s", e.Key, name, got, want)
			}
		}
		if rows.Err() != nil || members != len(body.Payload) {
			t.Errorf("%s: %d members arrived, Postgres has %d: %v", e.Key, len(body.Payload), members, rows.Err())
		}
	}
}
