package scenario_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// valve is a front that lets requests through when it is open, and counts those
// that wait.
type valve struct {
	open    chan struct{}
	waiting atomic.Int64
}

func newValve() *valve { return &valve{open: make(chan struct{})} }

func (v *valve) front(next http.Handler, left <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.waiting.Add(1)
		select {
		case <-v.open:
			next.ServeHTTP(w, r)
		case <-left:
		}
	})
}

func (v *valve) await(t *testing.T, n int64) {
	t.Helper()
	pgtest.Eventually(t, scenario.Patience, func() error {
		if got := v.waiting.Load(); got != n {
			return fmt.Errorf("%d requests wait, want %d", got, n)
		}
		return nil
	})
}

// terminate asks a process to stop.
func terminate(t *testing.T, p *relaybin.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// stopped waits for the end of a process that was asked to stop, and checks
// that it took no longer than that.
func stopped(t *testing.T, p *relaybin.Process, most time.Duration) {
	t.Helper()
	began := time.Now()
	p.AwaitExit(t, 0)
	if took := time.Since(began); took > most {
		t.Errorf("the stop took %s, want less than %s", took, most)
	}
}

// OPS-07: a stop takes nothing new, waits for what is in flight, marks it and
// confirms it: the next relay does not send it again.
func TestOPS07_StopWaitsForASlowQueue(t *testing.T) {
	t.Parallel()
	const inFlight = 16
	w := scenario.New(t)
	slow := newValve()
	w.Before(slow.front)
	w.Insert(scenario.Batch("m", 300)...)
	p := process(t, w, map[string]string{"RELAY_MAX_IN_FLIGHT": fmt.Sprint(inFlight)})
	slow.await(t, inFlight)
	terminate(t, p)
	p.AwaitLog(t, "draining")
	close(slow.open)
	p.AwaitExit(t, 0)
	if accepted := len(w.Queue.Accepted("")); accepted != inFlight {
		t.Errorf("%d messages were accepted, want the %d that were in flight", accepted, inFlight)
	}
	if marked := w.Count(`select count(*) from outbox.dispatched`); marked != inFlight {
		t.Errorf("%d messages are marked, want %d", marked, inFlight)
	}
	process(t, w, nil)
	w.Settle()
	for _, m := range w.Keys() {
		if got := w.Requests(m.Key); got != 1 {
			t.Errorf("%d requests for %s, want 1", got, m.Key)
		}
	}
}

// OPS-07: with a queue that hangs, a stop ends at the drain timeout, and nothing
// is confirmed that was not accepted. A relay that waits has nothing to drain.
func TestOPS07_StopWithAHangingQueue(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_DRAIN_TIMEOUT": "1s", "INFRAI_REQUEST_TIMEOUT": "60s"})
	w.Fault(emulator.Fault{Route: "queue.publish", Hang: true})
	p := process(t, w, nil)
	messages := scenario.Batch("m", 100, "a", "b", "")
	w.Insert(messages[0])
	committed := w.WAL()
	w.Insert(messages[1:]...)
	w.AwaitRequest("m-0")

	second := relaybin.Run(t, w.Env, "run")
	second.AwaitLog(t, "slot is held by another session, standing by")
	terminate(t, second)
	stopped(t, second, 10*time.Second)

	terminate(t, p)
	stopped(t, p, 10*time.Second)
	if marked := w.Count(`select count(*) from outbox.dispatched`); marked != 0 {
		t.Errorf("%d messages are marked, none was accepted", marked)
	}
	if confirmed := w.Confirmed(); confirmed >= committed {
		t.Errorf("the confirmed flush %d has passed the first message at %d", confirmed, committed)
	}
	w.Queue.ClearFaults()
	process(t, w, nil)
	w.Settle()
}

// OPS-07: a stop while Postgres does not answer, and while the relay waits for
// it to come back.
func TestOPS07_StopWithoutPostgres(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_DRAIN_TIMEOUT": "500ms"})
	proxy := w.Proxy()
	slow := newValve()
	w.Before(slow.front)
	p := process(t, w, nil)
	w.Insert(scenario.Batch("m", 40, "a", "b", "c", "d")...)
	slow.await(t, 4)
	proxy.Freeze()
	terminate(t, p)
	p.AwaitLog(t, "draining")
	close(slow.open) // accepted, and cannot be marked
	stopped(t, p, 15*time.Second)
	if marked := w.Count(`select count(*) from outbox.dispatched`); marked != 0 {
		t.Errorf("%d messages are marked through a frozen connection", marked)
	}
	proxy.Cut()
	proxy.Thaw()

	p = process(t, w, nil)
	w.AwaitAccepted()
	proxy.Refuse(true)
	proxy.Cut()
	p.AwaitLog(t, "session ended")
	terminate(t, p)
	stopped(t, p, 10*time.Second)

	p = relaybin.Run(t, w.Env, "run")
	p.AwaitLog(t, "database does not answer, waiting for it")
	terminate(t, p)
	stopped(t, p, 10*time.Second)

	proxy.Refuse(false)
	process(t, w, nil)
	w.Settle()
}

// epoch is how often the slot was taken.
func epoch(w *scenario.World) int64 {
	return w.Count(`select epoch from outbox.relays where slot = $1`, w.Env["RELAY_SLOT"])
}

// OPS-08: of two relays one works and the other waits, without a word beyond
// the first, until the one dies.
func TestOPS08_TheSecondWaitsAndTakesOver(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_STANDBY_INTERVAL": "50ms"})
	first := process(t, w, nil)
	second := relaybin.Run(t, w.Env, "run")
	second.AwaitLog(t, "slot is held by another session, standing by")
	before := epoch(w)
	messages := scenario.Batch("m", 600, "a", "b", "c", "d", "")
	w.Insert(messages[:200]...)
	w.AwaitRequest("m-150")
	kill(t, first)
	w.Insert(messages[200:300]...)
	second.AwaitLog(t, "session began")
	if after := epoch(w); after != before+1 {
		t.Errorf("the epoch is %d after %d, want one more", after, before)
	}
	third := relaybin.Run(t, w.Env, "run")
	third.AwaitLog(t, "slot is held by another session, standing by")
	w.Insert(messages[300:500]...)
	w.AwaitRequest("m-450")
	terminate(t, second)
	third.AwaitLog(t, "session began")
	second.AwaitExit(t, 0)
	w.Insert(messages[500:]...)
	w.Settle()
	for name, p := range map[string]*relaybin.Process{"second": second, "third": third} {
		n := 0
		for _, line := range p.Log().Lines() {
			if line.Message() == "slot is held by another session, standing by" {
				n++
			}
			if line.Level() == "error" {
				t.Errorf("the %s relay: %s", name, line.Text)
			}
		}
		if n != 1 {
			t.Errorf("the %s relay said %d times that it waits", name, n)
		}
	}
}

// OPS-08: a relay that stands by writes nothing and sends nothing, however often
// it would look through the table: what it would find there is on its way. The
// slot is in the hands of a reader that is no relay and does not get on.
func TestOPS08_AStandbyDoesNothing(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(hasty).With(map[string]string{"RELAY_STANDBY_INTERVAL": "50ms", "RELAY_RETENTION": "1h"})
	p := process(t, w, nil)
	w.Insert(scenario.Batch("before", 10, "a", "")...)
	w.Settle()
	w.Exec(`update outbox.dispatched set dispatched_at = now() - interval '1 day'`)
	terminate(t, p)
	p.AwaitExit(t, 0)
	release := holdSlot(t, w)
	p = relaybin.Run(t, w.Env, "run")
	p.AwaitLog(t, "slot is held by another session, standing by")
	w.Insert(scenario.Batch("waiting", 10, "a", "")...)
	state := func() (rows string) {
		err := w.Conn.QueryRow(t.Context(), `select concat_ws(' ', (select count(*) from outbox.messages), (select count(*) from outbox.dispatched),
			(select count(*) from outbox.deferred), (select count(*) from outbox.dead_letters), (select array_agg(r) from outbox.relays r))`).Scan(&rows)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	before := state()
	scenario.Throughout(t, 4*time.Second, func() error {
		if now := state(); now != before {
			return fmt.Errorf("a standby wrote: %s, before %s", now, before)
		}
		if n := w.Requests("waiting-0"); n != 0 {
			return fmt.Errorf("a standby sent a message")
		}
		return nil
	})
	release()
	w.AwaitAccepted()
	w.Order()
	w.Same()
}

// holdSlot reads from the world's slot and confirms nothing.
func holdSlot(t *testing.T, w *scenario.World) (release func()) {
	t.Helper()
	config, err := pgconn.ParseConfig(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["replication"], config.RuntimeParams["wal_sender_timeout"] = "database", "0"
	conn, err := pgconn.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	release = func() { _ = conn.Close(context.Background()) }
	t.Cleanup(release)
	err = pglogrepl.StartReplication(t.Context(), conn, w.Env["RELAY_SLOT"], 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'outbox_relay'"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// OPS-08: two relays that start at the same moment never both publish.
func TestOPS08_BothStartAtTheSameMoment(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_STANDBY_INTERVAL": "50ms"})
	var last int64
	for round := range 20 {
		relays := []*scenario.Relay{w.Start(), w.Start()}
		w.Insert(scenario.Batch(fmt.Sprintf("m%d", round), 50, "a", "b", "")...)
		w.AwaitAccepted()
		now := epoch(w)
		if now <= last {
			t.Fatalf("round %d: the epoch is %d after %d", round, now, last)
		}
		last = now
		for _, r := range relays {
			if err := r.Stop(); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			for _, line := range r.Logs().FilterMessage("session closed").All() {
				if trouble := fmt.Sprint(line.ContextMap()["error"]); strings.Contains(trouble, "end the stream") {
					t.Errorf("round %d: the server did not let the slot go in good order: %s", round, trouble)
				}
			}
		}
	}
	w.Start()
	w.Settle()
	for _, m := range w.Keys() { // nothing failed, so nothing has a reason to be sent twice
		if got := w.Requests(m.Key); got != 1 {
			t.Errorf("%d requests for %s, want 1", got, m.Key)
		}
	}
}
