package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/netfault"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// redWithin is how long a relay may seem ready although messages do not get
// through.
const redWithin = time.Minute

// patient is what asks for health, as an orchestrator does. Whatever happens to
// the world around the relay, /livez stays green: that is looked at all the time.
type patient struct {
	t   *testing.T
	url string
}

func patientOf(t *testing.T, p *relaybin.Process) *patient {
	t.Helper()
	return &patient{t: t, url: "http://" + p.AwaitLog(t, "admin server listens").Fields["address"].(string)}
}

// examine starts to look after a relay that has been started.
func examine(t *testing.T, p *relaybin.Process) *patient {
	t.Helper()
	h := patientOf(t, p)
	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { h.staysAlive(ctx) })
	t.Cleanup(func() {
		stop()
		watching.Wait()
	})
	return h
}

func (h *patient) staysAlive(ctx context.Context) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		status, body, err := h.ask(ctx, "/livez")
		if ctx.Err() == nil && (err != nil || status != http.StatusOK) {
			h.t.Errorf("/livez: %v, %d: %s", err, status, body)
			return
		}
	}
}

// ask asks a question that has to be answered at once: as soon as a busy machine can.
func (h *patient) ask(ctx context.Context, path string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// ready returns nil while the relay is ready, and mentions all of the texts.
func (h *patient) ready(texts ...string) error { return h.answers(http.StatusOK, texts) }

func (h *patient) answers(want int, texts []string) error {
	status, body, err := h.ask(context.Background(), "/readyz")
	switch {
	case err != nil:
		return err
	case status != want:
		return fmt.Errorf("/readyz is %d, want %d: %s", status, want, body)
	}
	for _, text := range texts {
		if !strings.Contains(body, text) {
			return fmt.Errorf("/readyz does not mention %q: %s", text, body)
		}
	}
	return nil
}

// turnsRed waits until the relay says that it is not ready, and why.
func (h *patient) turnsRed(reasons ...string) {
	h.t.Helper()
	began := time.Now()
	pgtest.Eventually(h.t, scenario.Patience, func() error { return h.answers(http.StatusServiceUnavailable, reasons) })
	if took := time.Since(began); took > redWithin {
		h.t.Errorf("it took %s until the relay was not ready", took)
	}
}

// turnsGreen waits until the relay is ready.
func (h *patient) turnsGreen(warnings ...string) {
	h.t.Helper()
	pgtest.Eventually(h.t, scenario.Patience, func() error { return h.ready(warnings...) })
}

// hasty makes everything come round often that a relay does now and then: some
// seconds are many rounds.
var hasty = map[string]string{
	"RELAY_STATUS_INTERVAL": "200ms", "RELAY_SILENCE_TIMEOUT": "2s", "RELAY_WAL_SENDER_TIMEOUT": "3s", "RELAY_TRUST_WINDOW": "2s",
	"RELAY_LEASE_INTERVAL": "200ms", "RELAY_CHECK_INTERVAL": "200ms", "RELAY_SWEEP_INTERVAL": "200ms", "RELAY_RECONNECT_MAX": "500ms",
	"RELAY_OPERATOR_RETRY": "300ms", "RELAY_CONNECT_TIMEOUT": "2s",
}

// OPS-06: a relay with nothing to do is ready all the time, and so is one that
// waits for it. What other databases write changes nothing.
func TestOPS06_Idle(t *testing.T) {
	t.Parallel()
	const long = 10 * time.Second // no stall of a busy machine is, and what is looked at lasts longer
	w := scenario.New(t).With(hasty).With(map[string]string{
		"RELAY_SILENCE_TIMEOUT": (long + 2*time.Second).String(), "RELAY_WAL_SENDER_TIMEOUT": (long + 2*time.Second).String(),
		"RELAY_TRUST_WINDOW": long.String(), "RELAY_CONNECT_TIMEOUT": long.String(),
	})
	active := examine(t, process(t, w, nil))
	p := relaybin.Run(t, w.Env, "run")
	p.AwaitLog(t, "slot is held by another session, standing by")
	standby := examine(t, p)
	active.turnsGreen("ok: active")
	standby.turnsGreen("ok: standby")
	scenario.Throughout(t, long+4*time.Second, func() error {
		w.Exec(`select pg_logical_emit_message(false, 'noise', repeat('x', 1000))`)
		if err := active.ready("ok: active"); err != nil {
			return err
		}
		return standby.ready("ok: standby")
	})
	awaitLife(t, w, "after")
	w.Settle()
}

// OPS-06: the queue is down, hangs, refuses the key, asks for a pause, and does
// not know a queue.
func TestOPS06_QueueDown(t *testing.T) {
	t.Parallel()
	faults := map[string]struct {
		fault  emulator.Fault
		reason string
	}{
		"down":         {emulator.Fault{Cut: emulator.CutReset}, "fail endpoint: the endpoint is closed"},
		"fails":        {emulator.Fault{Status: 503}, "status 503"},
		"hangs":        {emulator.Fault{Hang: true}, "unknown_outcome"},
		"key revoked":  {emulator.Fault{Status: 401}, "endpoint_closed: status 401"},
		"rate limited": {emulator.Fault{Status: 429, RetryAfter: "12"}, "rate_limited: status 429"},
		"queue gone":   {emulator.Fault{Status: 404}, "fail queue: queue orders is closed"},
	}
	for name, test := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := scenario.New(t).With(map[string]string{"INFRAI_REQUEST_TIMEOUT": "1s", "RELAY_PROBE_MAX": "2s"})
			h := examine(t, process(t, w, nil))
			awaitLife(t, w, "before")
			w.AwaitMarked() // a success among the failures would say that it is this queue only
			h.turnsGreen()
			test.fault.Route = "queue.publish"
			fault := w.Fault(test.fault)
			w.Insert(scenario.Batch("m", 20, "a", "b", "")...)
			h.turnsRed(test.reason)
			w.Queue.RemoveFault(fault)
			h.turnsGreen()
			w.Settle()
		})
	}
}

// OPS-06: requests may take long, by the settings, and do: nothing has failed yet,
// and nothing gets through.
func TestOPS06_OldestMessage(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"INFRAI_REQUEST_TIMEOUT": "5m", "RELAY_READY_MAX_AGE": "3s"})
	h := examine(t, process(t, w, nil))
	awaitLife(t, w, "before")
	h.turnsGreen()
	slow := w.Fault(emulator.Fault{Route: "queue.publish", Delay: 8 * time.Second})
	w.Insert(scenario.Batch("m", 5, "a", "")...)
	h.turnsRed("fail oldest: queue orders: a message was read")
	w.Queue.RemoveFault(slow)
	h.turnsGreen()
	w.Settle()
}

// OPS-06: Postgres is down, before the relay has seen it and after. In between the
// slot cannot be made.
func TestOPS06_PostgresDown(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	w := scenario.On(t, cluster.Migrated(t)).With(hasty)
	proxy := w.Proxy()
	proxy.Refuse(true)
	p := relaybin.Run(t, w.Env, "run")
	h := examine(t, p)
	h.turnsRed("fail: starting", "connect")
	open, err := w.Connect().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := scenario.Write(t.Context(), open, scenario.Message{Key: "never"}); err != nil {
		t.Fatal(err)
	}
	proxy.Refuse(false)
	h.turnsRed("fail: starting", "slot creation waits for an open transaction: pid", "RELAY_MODE=poll sends meanwhile")
	verbSays(t, w, "status", "no relay is streaming: its slot is being made since ", "and waits for pid ")
	standby := relaybin.Run(t, w.Env, "run")
	patientOf(t, standby).turnsGreen("ok: standby", "warn holder_waits: no relay is streaming: its slot is being made since ", "and waits for pid ")
	kill(t, standby)
	if err := open.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.turnsGreen("ok: active")
	awaitLife(t, w, "before")
	if err := cluster.Stop("immediate"); err != nil {
		t.Fatal(err)
	}
	h.turnsRed("fail: reconnecting", "connect")
	if err := cluster.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Reconnect()
	h.turnsGreen("ok: active")
	w.Settle()
}

// OPS-06: the server falls silent: the network is frozen, or only the walsender
// is. In the second case everything else looks well, and the slot is held for a
// relay that is not there.
func TestOPS06_ServerSilent(t *testing.T) {
	t.Parallel()
	t.Run("network", func(t *testing.T) {
		t.Parallel()
		w := scenario.New(t).With(hasty)
		proxy := w.Proxy()
		h := examine(t, process(t, w, nil))
		h.turnsGreen("ok: active")
		frozen(t, w, proxy, h)
	})
	t.Run("walsender", func(t *testing.T) {
		t.Parallel()
		w := scenario.On(t, pgtest.New(t).Migrated(t)) // other tests would wait for this process
		h := examine(t, process(t, w, nil))
		h.turnsGreen("ok: active")
		walsender := int(w.Count(`select active_pid from pg_replication_slots where slot_name = $1`, w.Env["RELAY_SLOT"]))
		if err := syscall.Kill(walsender, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		awake := func() { _ = syscall.Kill(walsender, syscall.SIGCONT) }
		t.Cleanup(awake)
		w.Insert(scenario.Message{Key: "unseen"})
		h.turnsRed("fail holder_silent", fmt.Sprintf("pid %d", walsender), fmt.Sprintf("select pg_terminate_backend(%d)", walsender))
		verbSays(t, w, "status", ", but the server has heard nothing from it for ", fmt.Sprintf("select pg_terminate_backend(%d)", walsender))
		verbSays(t, w, "doctor", "D12", "the server has heard nothing from it for ", fmt.Sprintf("select pg_terminate_backend(%d)", walsender))
		awake()
		h.turnsGreen("ok: active")
		w.Settle()
	})
}

// verbSays runs a verb until it says what it has to say. A relay that makes its slot
// tries again now and then: for a moment there is nothing to see.
func verbSays(t *testing.T, w *scenario.World, verb string, parts ...string) {
	t.Helper()
	pgtest.Eventually(t, scenario.Patience, func() error {
		p := relaybin.Run(t, w.Env, verb)
		p.AwaitExit(t, 0)
		for _, part := range parts {
			if !strings.Contains(p.Stdout(), part) {
				return fmt.Errorf("%s lacks %q:\n%s", verb, part, p.Stdout())
			}
		}
		return nil
	})
}

func frozen(t *testing.T, w *scenario.World, proxy *netfault.Proxy, h *patient) {
	t.Helper()
	proxy.Freeze()
	w.Insert(scenario.Message{Key: "unseen"})
	h.turnsRed("fail")
	proxy.Cut()
	proxy.Thaw()
	h.turnsGreen("ok: active")
	w.Settle()
}

// OPS-06: the slot is lost, and a person is to decide.
func TestOPS06_SlotLost(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(hasty).With(map[string]string{"RELAY_SLOT_LOST": "stop"})
	h := examine(t, process(t, w, nil))
	awaitLife(t, w, "before")
	h.turnsGreen()
	dropSlotUnder(t, w)
	h.turnsRed("is gone", "outbox-relay slot create")
	verb(t, w, 0, "slot", "create")
	h.turnsGreen()
	awaitLife(t, w, "after")
	w.Settle()
}

// OPS-06: somebody takes the table out of the publication: nothing fails, and no
// message comes any more.
func TestOPS06_PublicationChanged(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(hasty)
	h := examine(t, process(t, w, nil))
	h.turnsGreen()
	w.Exec(`alter publication outbox_relay drop table outbox.messages`)
	h.turnsRed("fail source", "lacks inserts", "alter publication")
	w.Exec(`alter publication outbox_relay add table outbox.messages`)
	h.turnsGreen()
	awaitLife(t, w, "after")
	w.AwaitAccepted()
}

// OPS-06: one message is refused, or fails again and again. The relay does its
// work: it stays ready, and warns.
func TestOPS06_PoisonRow(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(quick).With(map[string]string{"RELAY_DEFER_AFTER": "500ms"})
	w.Fault(emulator.Fault{Route: "queue.publish", Key: "refused", Status: 400})
	w.Fault(emulator.Fault{Route: "queue.publish", Key: "fails", Status: 500})
	h := examine(t, process(t, w, nil))
	h.turnsGreen()
	stop := w.Writers(2)
	awaitLife(t, w, "before")
	w.Insert(scenario.Message{Key: "refused", OrderingKey: "x"}, scenario.Message{Key: "fails", OrderingKey: "y"})
	h.turnsGreen("warn dead_letters: 1 dead letter needs a person", "warn held: queue orders: 1 ordering key waits")
	scenario.Throughout(t, 3*time.Second, func() error { return h.ready() })
	stop()
	w.Forget("refused", "fails")
	w.AwaitAccepted()
}

// OPS-06: a transaction that nobody ends keeps the WAL of a slot that is read. The
// relay stays ready, and says in time who costs it its slot.
func TestOPS06_SlotInDanger(t *testing.T) {
	t.Parallel()
	w := scenario.On(t, pgtest.New(t, pgtest.Options{Settings: map[string]string{
		"max_slot_wal_keep_size": "200MB", "max_wal_size": "64MB", "min_wal_size": "32MB",
	}}).Migrated(t))
	h := examine(t, process(t, w, nil))
	awaitLife(t, w, "before")
	w.AwaitMarked()
	forgotten := w.Connect()
	for _, sql := range []string{"set application_name = 'the report'", "begin", "create table report ()"} {
		if _, err := forgotten.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	w.Exec("select count(pg_logical_emit_message(false, '', repeat('x', 1000000))) from generate_series(1, 120)")
	awaitLife(t, w, "after")
	h.turnsGreen("warn slot: slot t_testops06_slotindanger keeps", "is lost beyond 200.0 MiB", "the relay has confirmed all but", "outbox-relay doctor names it (D13)")
	if _, err := forgotten.Exec(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	w.Settle()
}

// OPS-06: somebody locks tables of the outbox and goes for lunch. The cluster is
// the test's own: no slot can be made while such a transaction is open.
func TestOPS06_TableLocked(t *testing.T) {
	t.Parallel()
	w := scenario.On(t, pgtest.New(t).Migrated(t))
	h := examine(t, process(t, w, nil))
	awaitLife(t, w, "before")
	w.AwaitMarked()
	h.turnsGreen()
	for i, round := range []struct {
		tables  []string
		insert  bool // where the application can still insert
		reasons []string
	}{
		{[]string{"messages"}, false, []string{"fail database: the loop loader fails"}},
		{[]string{"queues", "deferred", "dispatched"}, true, []string{
			"fail database: the loop settings fails", "fail database: the loop loader fails", "fail writer",
		}},
		{[]string{"relays"}, true, []string{"fail writer"}},
	} {
		unlock := locked(t, w, round.tables...)
		if round.insert {
			w.Insert(scenario.Batch(fmt.Sprintf("m%d", i), 10, "a", "")...)
		}
		h.turnsRed(append(round.reasons, "lock timeout", "select pid, usename, application_name")...)
		unlock()
		h.turnsGreen()
	}
	w.Settle()
}

// locked locks tables of the outbox, each in a session of its own: who waits for
// one while he holds another, invites a deadlock.
func locked(t *testing.T, w *scenario.World, tables ...string) (unlock func()) {
	t.Helper()
	open := make([]pgx.Tx, len(tables))
	for i, table := range tables {
		var err error
		if open[i], err = w.Connect().Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := open[i].Exec(t.Context(), "lock table outbox."+table+" in access exclusive mode"); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for _, tx := range open {
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// OPS-06: the same without the WAL: idle, with a standby, and with a lock on the
// table of messages.
func TestOPS06_Poll(t *testing.T) {
	t.Parallel()
	w := scenario.On(t, pgtest.New(t).Migrated(t)).With(map[string]string{"RELAY_MODE": "poll"})
	active := examine(t, process(t, w, nil))
	p := relaybin.Run(t, w.Env, "run")
	p.AwaitLog(t, "another relay is at work, standing by")
	standby := examine(t, p)
	awaitLife(t, w, "before")
	active.turnsGreen("ok: active")
	standby.turnsGreen("ok: standby")
	scenario.Throughout(t, 3*time.Second, func() error { return errors.Join(active.ready(), standby.ready()) })
	unlock := locked(t, w, "messages")
	active.turnsRed("fail database: the loop loader fails", "lock timeout") // there is nothing new to read
	unlock()
	active.turnsGreen("ok: active")
	awaitLife(t, w, "after")
	w.AwaitAccepted()
	w.AwaitMarked()
}
