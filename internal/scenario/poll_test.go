package scenario_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
	"github.com/outbox-relay/outbox-relay/schema"
)

// Poll mode: the promises on a server that writes no logical WAL.

// polling makes the world's relays poll.
func polling(w *scenario.World) *scenario.World {
	return w.With(map[string]string{"RELAY_MODE": "poll", "RELAY_POLL_INTERVAL": "20ms"})
}

// settlePoll waits until every committed message is accepted and marked, and
// makes all checks. Order is that of the ids.
func settlePoll(t *testing.T, w *scenario.World) {
	t.Helper()
	w.AwaitAccepted()
	w.AwaitMarked()
	w.NoPhantom()
	w.Same()
	first := map[string]uint64{}
	for _, m := range w.Queue.Accepted("") {
		if first[m.Key] == 0 {
			first[m.Key] = m.Sequence
		}
	}
	rows, err := w.Conn.Query(context.Background(), `select key, ordering_key from outbox.messages where ordering_key is not null order by id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	last := map[string]string{}
	for rows.Next() {
		var key, lane string
		if err := rows.Scan(&key, &lane); err != nil {
			t.Fatal(err)
		}
		if before := last[lane]; before != "" && first[key] < first[before] {
			t.Errorf("ordering key %q: %q was accepted before %q, which has a lower id", lane, key, before)
		}
		last[lane] = key
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
}

// withoutLogical is a world on a server that cannot decode its WAL and has no
// publication. Its relays have a role that may not replicate.
func withoutLogical(t *testing.T) *scenario.World {
	t.Helper()
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{"wal_level": "replica"}})
	w := polling(scenario.On(t, cluster.Migrated(t)))
	w.Exec(`drop publication outbox_relay`)
	var sql strings.Builder
	grants := schema.GrantsConfig{Schema: "outbox", Database: w.Conn.Config().Database, Relay: "relay", Poll: true}
	if err := schema.Grants(&sql, grants); err != nil {
		t.Fatal(err)
	}
	if err := w.Conn.PgConn().Exec(t.Context(), sql.String()).Close(); err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.User("relay")
	w.Env["DATABASE_URL"] = address.String()
	return w
}

// pollVerb runs a verb and returns what it prints.
func pollVerb(t *testing.T, w *scenario.World, code int, args ...string) string {
	t.Helper()
	p := relaybin.Run(t, w.Env, args...)
	p.AwaitExit(t, code)
	return p.Stdout()
}

// The whole way where there is no logical replication: doctor, run, a queue that
// is down, kills, status.
func TestPoll_ServerWithoutLogicalReplication(t *testing.T) {
	t.Parallel()
	w := brisk(withoutLogical(t))
	if got := pollVerb(t, w, 0, "doctor"); !strings.Contains(got, "0 failed") {
		t.Errorf("doctor prints\n%s", got)
	}
	messages := scenario.Batch("m", 2000, "a", "b", "c", "d", "")
	w.Insert(messages[:200]...)
	p := process(t, w, nil)
	w.AwaitAccepted()
	if got := pollVerb(t, w, 0, "status"); !strings.Contains(got, "polling since ") {
		t.Errorf("status prints %q", got)
	}

	down := w.Fault(emulator.Fault{Route: "queue.publish", Status: 503})
	for i := 200; i < 1200; i += 50 {
		w.Commit(w.Conn, messages[i:i+50]...)
	}
	awaitDeferred(w, t, 1000, "true")
	kill(t, p)
	p = process(t, w, nil)
	w.Commit(w.Conn, messages[1200:1600]...)
	awaitDeferred(w, t, 1400, "true")
	w.Queue.RemoveFault(down)
	for i := 1600; i < 2000; i += 50 {
		w.Commit(w.Conn, messages[i:i+50]...)
	}
	settlePoll(t, w)
	noneLeft(w, t)
	if n := w.Count(`select count(*) from outbox.deferred where reason = 'recovered'`); n != 0 {
		t.Errorf("%d messages are called recovered", n)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.AwaitExit(t, 0)
	if got := pollVerb(t, w, 0, "status"); !strings.Contains(got, "no relay is polling, no message without outcome") {
		t.Errorf("status prints %q", got)
	}
	for _, line := range p.Log().Lines() {
		if line.Level() == "error" {
			t.Errorf("an error: %s", line.Text)
		}
	}
}

// APP-01 by polling: whatever way a transaction takes.
func TestPoll_Promise1_ExistsExactlyWhenCommitted(t *testing.T) {
	t.Parallel()
	w := polling(scenario.New(t))
	w.Start()
	manyTransactions(t, w)
	settlePoll(t, w)
}

// Several transactions of each writer are open at once and commit in any order,
// while the relay is killed again and again.
func TestPoll_CommitsOutOfIDOrderAndKills(t *testing.T) {
	t.Parallel()
	w := polling(scenario.New(t))
	random := seeded(t)
	p := process(t, w, nil)
	const writers, rounds, kills = 6, 120, 4
	var group sync.WaitGroup
	for writer := range writers {
		random := rand.New(rand.NewPCG(random.Uint64(), 0))
		conns := []*pgx.Conn{w.Connect(), w.Connect(), w.Connect()}
		group.Go(func() { overlap(t, w, conns, random, fmt.Sprint("w", writer), rounds) })
	}
	written := make(chan struct{})
	go func() { group.Wait(); close(written) }()
	for i := range kills {
		want := (i + 1) * 50
		pgtest.Eventually(t, scenario.Patience, func() error {
			if n := len(w.Queue.Accepted("")); n < want {
				return fmt.Errorf("%d messages are accepted, want %d", n, want)
			}
			return nil
		})
		kill(t, p)
		p = process(t, w, nil)
	}
	<-written
	settlePoll(t, w)
}

// overlap writes messages in transactions that overlap.
func overlap(t *testing.T, w *scenario.World, conns []*pgx.Conn, random *rand.Rand, name string, rounds int) {
	ctx := context.Background()
	open := make([]pgx.Tx, len(conns))
	written := make([][]scenario.Message, len(conns))
	end := func(i int) {
		if open[i] == nil {
			return
		}
		if err := open[i].Commit(ctx); err != nil {
			t.Errorf("commit: %v", err)
		}
		w.Committed(written[i]...)
		open[i], written[i] = nil, nil
	}
	for round := range rounds {
		i := random.IntN(len(conns))
		if open[i] != nil && random.IntN(3) == 0 {
			end(i)
			continue
		}
		if open[i] == nil {
			tx, err := conns[i].Begin(ctx)
			if err != nil {
				t.Errorf("begin: %v", err)
				return
			}
			open[i] = tx
		}
		m := scenario.Message{Key: fmt.Sprintf("%s-%d", name, round), OrderingKey: []string{"", "a", "b"}[random.IntN(3)]}
		if err := scenario.Write(ctx, open[i], m); err != nil {
			t.Errorf("write: %v", err)
			return
		}
		written[i] = append(written[i], m)
	}
	for i := range open {
		end(i)
	}
}

// Two relays: one works, the other stands by; it takes over after a stop and
// after a kill, and nothing is sent twice that has its outcome.
func TestPoll_TwoRelays(t *testing.T) {
	t.Parallel()
	w := polling(scenario.New(t))
	first := process(t, w, nil)
	second := relaybin.Run(t, w.Env, "run")
	second.AwaitLog(t, "another relay is at work, standing by")
	messages := scenario.Batch("m", 300, "a", "b", "")
	w.Insert(messages[:100]...)
	w.AwaitAccepted()
	w.AwaitMarked()
	if err := first.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	first.AwaitExit(t, 0)
	second.AwaitLog(t, "session began")
	third := relaybin.Run(t, w.Env, "run")
	third.AwaitLog(t, "another relay is at work, standing by")
	w.Insert(messages[100:200]...)
	w.AwaitAccepted()
	w.AwaitMarked()
	kill(t, second)
	third.AwaitLog(t, "session began")
	w.Insert(messages[200:]...)
	settlePoll(t, w)
	for _, m := range messages {
		if got := w.Requests(m.Key); got != 1 {
			t.Errorf("%d requests for %s, want 1", got, m.Key)
		}
	}
}

// A relay that is frozen loses the lock, and sends nothing when it wakes up: what
// it had in hand, the other has sent.
func TestPoll_FrozenRelay(t *testing.T) {
	t.Parallel()
	w := polling(scenario.New(t)).With(map[string]string{
		"RELAY_POLL_LEASE_TIMEOUT": "8s", "RELAY_TRUST_WINDOW": "5s", "RELAY_MAX_IN_FLIGHT": "4",
		"INFRAI_REQUEST_TIMEOUT": "1m", // what is on its way stays there
	})
	hang := w.Fault(emulator.Fault{Route: "queue.publish", Hang: true})
	messages := scenario.Batch("m", 100, "a", "b", "")
	w.Insert(messages...)
	first := process(t, w, nil)
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := len(w.Published()); n != 4 {
			return fmt.Errorf("%d requests are under way", n)
		}
		return nil
	})
	if err := first.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Signal(syscall.SIGCONT) })
	w.Queue.RemoveFault(hang)
	second := process(t, w, nil)
	settlePoll(t, w)
	before := len(w.Published())
	if err := first.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	first.AwaitLog(t, "another relay is at work, standing by")
	if after := len(w.Published()); after != before {
		t.Errorf("the relay sent %d messages after it was frozen", after-before)
	}
	w.Insert(scenario.Message{Key: "after", OrderingKey: "a"})
	settlePoll(t, w)
	kill(t, second)
	w.Insert(scenario.Message{Key: "by-the-first", OrderingKey: "a"})
	settlePoll(t, w)
}

// From the WAL to polling and back: nothing is lost, whoever had the messages,
// and nothing looks like an accident, whether the slot was dropped meanwhile or not.
func TestPoll_ChangeOfMode(t *testing.T) {
	t.Parallel()
	for name, dropped := range map[string]bool{"the slot stays": false, "the slot is dropped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changeMode(t, dropped)
		})
	}
}

func changeMode(t *testing.T, dropped bool) {
	w := scenario.New(t)
	streaming := process(t, w, nil)
	messages := scenario.Batch("m", 400, "a", "b", "")
	w.Insert(messages[:100]...)
	w.AwaitAccepted()

	polling(w)
	next := relaybin.Run(t, w.Env, "run")
	next.AwaitLog(t, "another relay is at work, standing by") // it has the slot
	down := w.Fault(emulator.Fault{Route: "queue.publish", Hang: true})
	w.Insert(messages[100:200]...)
	kill(t, streaming)
	next.AwaitLog(t, "a slot of this name keeps WAL that nobody reads in poll mode")
	next.AwaitLog(t, "session began")
	w.Queue.RemoveFault(down)
	w.Insert(messages[200:300]...)
	settlePoll(t, w)
	if err := next.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	next.AwaitExit(t, 0)

	w.Insert(messages[300:350]...)
	if dropped {
		w.Exec(`select pg_drop_replication_slot($1)`, w.Env["RELAY_SLOT"])
	}
	w.Env["RELAY_MODE"] = "wal"
	last := process(t, w, nil)
	w.Insert(messages[350:]...)
	w.Settle()
	for _, line := range last.Log().Lines() {
		if line.Level() == "error" {
			t.Errorf("an error: %s", line.Text)
		}
	}
}

// What the database holds when the first relay of an outbox polls: old messages
// in id order before new ones, and none in the table deferred for that.
func TestPoll_MessagesFromBeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	w := polling(scenario.New(t))
	old := scenario.Batch("old", 4000, "a", "b", "c", "")
	for i := 0; i < len(old); i += 500 {
		w.Commit(w.Conn, old[i:i+500]...)
	}
	r := w.Start()
	w.Insert(scenario.Batch("new", 100, "a", "b", "c", "")...)
	settlePoll(t, w)
	if r.Logs().FilterMessage("reconciled").Len() != 0 {
		t.Error("the relay reconciled")
	}
	began := time.Now()
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	// Nothing is in flight: the drain timeout of 20 s is not for this.
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the stop took %v", took)
	}
}

// A message that waits for its time is held in the table, and deleting it
// withdraws it.
func TestPoll_ScheduledMessages(t *testing.T) {
	t.Parallel()
	w := polling(scenario.New(t))
	w.Start()
	w.Exec(`insert into outbox.messages (key, queue, payload, deliver_at) values
		('soon', 'orders', '{}', now() + interval '2 seconds'), ('never', 'orders', '{}', now() + interval '1 hour')`)
	awaitDeferred(w, t, 1, "reason = 'scheduled' and not_before > now() + interval '1 minute'")
	w.Exec(`delete from outbox.messages where key = 'never'`)
	w.Exec(`update outbox.deferred set not_before = now() where not_before > now() + interval '1 minute'`)
	w.Committed(scenario.Message{Key: "soon"})
	settlePoll(t, w)
	noneLeft(w, t)
	notBeforeItIsDue(t, w, "soon")
	accepted := w.Queue.Accepted("")
	if slices.ContainsFunc(accepted, func(m emulator.Message) bool { return m.Key == "never" }) {
		t.Error("a message arrived that was withdrawn")
	}
}

// OPS-14 by polling: SQL goes through a pooler that hands out transactions. The
// connection with the lock must not, whether the pooler refuses the settings of a
// session or ignores them.
func TestPoll_ConnectionPooler(t *testing.T) {
	t.Parallel()
	w := polling(scenario.New(t))
	direct := w.Env["DATABASE_URL"]
	ignored := []string{
		"enable_seqscan", "enable_bitmapscan", "extra_float_digits", "search_path", "default_transaction_isolation", "idle_session_timeout",
		"statement_timeout", "lock_timeout", "tcp_user_timeout", "idle_in_transaction_session_timeout",
	}
	for name, ignored := range map[string][]string{"refuses settings": nil, "ignores settings": ignored} {
		w.Env["DATABASE_URL"] = pgtest.Pooler(t, w.URL, ignored...)
		p := relaybin.Run(t, w.Env, "run")
		p.AwaitExit(t, 14)
		if text := p.Log().Text(); !strings.Contains(text, "connection pooler answers") || !strings.Contains(text, "RELAY_REPLICATION_URL") {
			t.Errorf("%s: the log does not tell of the pooler:\n%s", name, text)
		}
	}
	w.Env["RELAY_REPLICATION_URL"] = direct
	process(t, w, nil)
	w.Insert(scenario.Batch("m", 100, "a", "b", "")...)
	settlePoll(t, w)
}

// What the relay was on last holds it in this mode, too.
func TestPoll_AnotherCluster(t *testing.T) {
	t.Parallel()
	w := polling(scenario.New(t))
	w.Exec(`insert into outbox.relays (slot, system_identifier, timeline, epoch, confirmed_lsn) values ($1, 4711, 1, 1, '0/0')`, w.Env["RELAY_SLOT"])
	w.Insert(scenario.Batch("m", 20, "a", "")...)
	p := relaybin.Run(t, w.Env, "run")
	line := p.AwaitLog(t, "table cannot be polled, will be tried again")
	if line.Level() != "error" || !strings.Contains(line.Text, "this is another cluster") || !strings.Contains(line.Text, "outbox-relay adopt") {
		t.Errorf("the line is %s", line.Text)
	}
	if n := len(w.Published()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	pollVerb(t, w, 0, "adopt", "--yes")
	p.AwaitLog(t, "session began")
	settlePoll(t, w)
}

// OUT-02 by polling: the server is restarted in every way while applications
// write. A fast shutdown never waits for a relay that polls.
func TestPoll_PostgresRestarts(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{"wal_level": "replica"}})
	w := polling(scenario.On(t, cluster.Migrated(t))).With(map[string]string{"RELAY_RECONNECT_MAX": "500ms"})
	r := w.Start()
	r.AwaitLog("session began")
	stop := w.Writers(3)
	for i, restart := range []func() error{
		func() error { return cluster.Restart("immediate") },
		func() error { return cluster.Restart("fast") },
		func() error {
			if err := cluster.Kill(); err != nil {
				return err
			}
			return cluster.Start(context.Background())
		},
	} {
		if err := restart(); err != nil {
			t.Fatalf("restart %d: %v", i, err)
		}
		w.Reconnect()
		w.Insert(scenario.Message{Key: fmt.Sprint("after-", i), OrderingKey: "r"})
		w.AwaitRequest(fmt.Sprint("after-", i))
	}
	stop()
	settlePoll(t, w)
	if err := r.Alive(); err != nil {
		t.Error(err)
	}
}
