package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// pair is a primary with a standby, and a relay that has both in its URL.
type pair struct {
	*scenario.World

	t                *testing.T
	primary, standby *pgtest.Cluster
	database         string
	failover         bool // the version has slots that follow a failover
}

// newPair makes them. The relay's URL does not say which host is the primary.
func newPair(t *testing.T) *pair {
	t.Helper()
	// A slot of the standby is given up fast by a server that is killed anyway.
	primary := pgtest.New(t, pgtest.Options{Settings: map[string]string{"wal_receiver_status_interval": "1s"}})
	address := primary.Migrated(t)
	standby := pgtest.NewStandby(t, primary)
	w := scenario.On(t, address).With(map[string]string{"RELAY_RECONNECT_MAX": "500ms", "RELAY_SWEEP_INTERVAL": "1s"})
	p := &pair{World: w, t: t, primary: primary, standby: standby, database: w.Conn.Config().Database}
	p.failover = w.Count(`select current_setting('server_version_num')::int`) >= 170000
	w.Env["DATABASE_URL"] = p.list(standby, primary)
	return p
}

// list is a URL with several hosts.
func (p *pair) list(clusters ...*pgtest.Cluster) string {
	hosts := make([]string, len(clusters))
	for i, c := range clusters {
		hosts[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port()))
	}
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", strings.Join(hosts, ","), p.database)
}

// on is a connection to one of the servers.
func (p *pair) on(c *pgtest.Cluster) *pgx.Conn {
	p.t.Helper()
	return connectTo(p.t, c.URL(p.database))
}

// moveTo leads the world's own connections to another server.
func (p *pair) moveTo(c *pgtest.Cluster) {
	p.t.Helper()
	p.URL = c.URL(p.database)
	p.Reconnect()
}

// awaitSynced waits until the slot is ready on the standby, where the version
// has that.
func (p *pair) awaitSynced() {
	p.t.Helper()
	if !p.failover {
		return
	}
	conn := p.on(p.standby)
	pgtest.Eventually(p.t, scenario.Patience, func() error {
		var ready bool
		err := conn.QueryRow(context.Background(), `
			select coalesce(bool_and(synced and not temporary and invalidation_reason is null), false)
			from pg_replication_slots where slot_name = $1`, p.Env["RELAY_SLOT"]).Scan(&ready)
		if err == nil && !ready {
			err = errors.New("the slot is not synced")
		}
		return err
	})
}

// failOver kills the primary at once and promotes the standby.
func (p *pair) failOver() {
	p.t.Helper()
	if err := p.primary.Kill(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.standby.Promote(); err != nil {
		p.t.Fatal(err)
	}
}

// load commits messages until stop is called: 200 a second, by ordering key.
// What is committed is known only on the server that survives.
func (p *pair) load(prefix string) (stop func()) {
	enough, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	address := p.list(p.primary, p.standby) + "&target_session_attrs=primary"
	for lane := range 8 {
		group.Go(func() { write(enough, address, fmt.Sprintf("%s-%d", prefix, lane)) })
	}
	stop = func() { cancel(); group.Wait() }
	p.t.Cleanup(stop)
	return stop
}

// write commits messages of one ordering key, 25 a second. A key whose commit
// failed is not used again.
func write(ctx context.Context, address, lane string) {
	var conn *pgx.Conn
	ticker := time.NewTicker(40 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if conn != nil {
				_ = conn.Close(context.Background())
			}
			return
		}
		if conn == nil || conn.IsClosed() {
			var err error
			if conn, err = pgx.Connect(ctx, address); err != nil {
				conn = nil
				continue
			}
		}
		_ = scenario.Write(ctx, conn, scenario.Message{Key: fmt.Sprintf("%s-%d", lane, n), OrderingKey: lane})
	}
}

// survivors takes the messages of the server that survived for what was
// committed, in the order of each ordering key, and the keys that were sent and
// are not among them for lost ones. It returns how many were lost.
func (p *pair) survivors(prefix string) (lost int) {
	p.t.Helper()
	rows, err := p.Conn.Query(context.Background(), `select key, ordering_key from outbox.messages where key like $1 || '-%' order by id`, prefix)
	if err != nil {
		p.t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m scenario.Message, err error) {
		return m, row.Scan(&m.Key, &m.OrderingKey)
	})
	if err != nil {
		p.t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range found {
		known[m.Key] = true
	}
	p.Committed(found...)
	var gone []string
	for _, e := range p.Published() {
		if strings.HasPrefix(e.Key, prefix+"-") && !known[e.Key] {
			known[e.Key] = true
			gone = append(gone, e.Key)
		}
	}
	p.Forget(gone...)
	return len(gone)
}

// OUT-04: the primary is killed under load and its standby promoted. On 17 and
// later the slot follows; before, the relay makes it anew and takes from the table
// what is missing. The relay finds the new primary by itself, and the old one,
// when it comes back, is none to it.
func TestFailover_PrimaryKilledUnderLoad(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	r := process(t, p.World, nil)
	stop := p.load("load")
	p.AwaitRequest("load-0-20")
	p.awaitSynced()
	p.AwaitRequest("load-1-50")
	p.failOver()
	p.moveTo(p.standby)
	failedOver := time.Now()
	p.awaitEpoch(2)
	t.Logf("streaming again %v after the promotion", time.Since(failedOver).Round(time.Millisecond))
	p.awaitRows("load", 1000)
	stop()

	lost := p.survivors("load")
	t.Logf("%d messages survived, %d were sent and lost with the primary", len(p.Keys()), lost)
	p.Settle()
	noDeadLetters(t, p.World)
	if made := len(linesWith(r, "slot created")); p.failover == (made > 1) {
		t.Errorf("the slot was made %d times", made)
	}
	r.AwaitLog(t, "server was promoted since the last session, messages whose marks were lost are sent again")
	if lines := linesWith(r, "dead letter"); len(lines) > 0 {
		t.Errorf("a dead letter: %s", lines[0].Text)
	}
	p.strayComesBack(r)
}

// awaitEpoch waits for a session on the world's server.
func (p *pair) awaitEpoch(least int64) {
	p.t.Helper()
	pgtest.Eventually(p.t, scenario.Patience, func() error {
		var epoch int64
		err := p.Conn.QueryRow(context.Background(), `select epoch from outbox.relays where timeline > 1`).Scan(&epoch)
		if err == nil && epoch < least {
			err = fmt.Errorf("epoch is %d", epoch)
		}
		return err
	})
}

// awaitRows waits for messages of the load.
func (p *pair) awaitRows(prefix string, least int64) {
	p.t.Helper()
	pgtest.Eventually(p.t, scenario.Patience, func() error {
		n := p.Count(`select count(*) from outbox.messages where key like $1 || '-%'`, prefix)
		if n < least {
			return fmt.Errorf("%d messages", n)
		}
		return nil
	})
}

// strayComesBack starts the old primary, which knows nothing of the promotion.
// Whether it runs or starts anew, a relay with both in its URL, the old one
// first, works on the new one.
func (p *pair) strayComesBack(running *relaybin.Process) {
	p.t.Helper()
	if err := p.primary.Start(context.Background()); err != nil {
		p.t.Fatal(err)
	}
	stray := p.on(p.primary)
	if err := scenario.Write(context.Background(), stray, scenario.Message{Key: "stray", OrderingKey: "load-0"}); err != nil {
		p.t.Fatal(err)
	}
	p.Exec(`select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1`, p.Env["RELAY_SLOT"])
	p.awaitEpoch(3)
	p.Insert(scenario.Message{Key: "after-the-stray", OrderingKey: "load-0"})
	p.AwaitRequest("after-the-stray")
	terminate(p.t, running)
	running.AwaitExit(p.t, 0)

	p.Env["DATABASE_URL"] = p.list(p.primary, p.standby)
	next := process(p.t, p.World, nil)
	p.Insert(scenario.Message{Key: "from-a-new-start", OrderingKey: "load-0"})
	p.Settle()
	if n := p.Requests("stray"); n != 0 {
		p.t.Errorf("%d requests for a message of the old primary", n)
	}
	p.leadBack(next)
}

// leadBack takes the new primary away, so that a running relay finds the old one
// only: it sends nothing.
func (p *pair) leadBack(r *relaybin.Process) {
	p.t.Helper()
	if err := p.standby.Stop("immediate"); err != nil {
		p.t.Fatal(err)
	}
	pgtest.Eventually(p.t, scenario.Patience, func() error {
		if len(linesWith(r, "older than timeline 2")) == 0 {
			return errors.New("the old primary is not refused")
		}
		return nil
	})
	if n := p.Requests("stray"); n != 0 {
		p.t.Errorf("%d requests for a message of the old primary", n)
	}
	if err := p.standby.Start(context.Background()); err != nil {
		p.t.Fatal(err)
	}
	p.Reconnect()
	p.Insert(scenario.Message{Key: "at-the-end", OrderingKey: "load-0"})
	p.AwaitRequest("at-the-end")
	if text := verb(p.t, p.World, 0, "adopt"); !strings.Contains(text, "timeline 2") {
		p.t.Errorf("adopt looked at the old primary:\n%s", text)
	}
}

// OUT-09: the only host in the URL is a standby: the relay says so and waits, and
// goes on when it is promoted. A session that may not write is told apart.
func TestOUT09_StandbyThenPromoted(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.Env["DATABASE_URL"] = p.list(p.standby)
	r := relaybin.Run(t, p.Env, "run")
	pgtest.Eventually(t, scenario.Patience, func() error {
		if len(linesWith(r, "is a standby; the relay needs the primary")) == 0 {
			return errors.New("the standby is not told")
		}
		return nil
	})
	p.Insert(scenario.Batch("m", 20, "a", "b", "")...)
	p.awaitReplayed()
	scenario.Throughout(t, 2*time.Second, func() error {
		if n := len(p.Published()); n > 0 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	p.failOver()
	p.moveTo(p.standby)
	r.AwaitLog(t, "session began")
	p.Insert(scenario.Message{Key: "after", OrderingKey: "a"})
	p.Settle()
	if n := len(linesWith(r, "is a standby; the relay needs the primary")); n > 1 {
		t.Errorf("told %d times", n)
	}
}

// awaitReplayed waits until the standby has all that the primary has.
func (p *pair) awaitReplayed() {
	p.t.Helper()
	end := p.WAL()
	conn := p.on(p.standby)
	pgtest.Eventually(p.t, scenario.Patience, func() error {
		var there int64
		err := conn.QueryRow(context.Background(), `select (pg_last_wal_replay_lsn() - '0/0')::bigint`).Scan(&there)
		if err == nil && there < end {
			err = fmt.Errorf("replayed up to %d of %d", there, end)
		}
		return err
	})
}

// The messages that wait in the table survive a failover with their order, and
// the marks that were lost with the primary cost a repeated request.
func TestFailover_WithABacklog(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	down := p.Fault(emulator.Fault{Route: "queue.publish", Status: 503})
	process(t, p.World, nil)
	messages := scenario.Batch("m", 300, "a", "b", "c")
	p.Insert(messages[:200]...)
	p.awaitSynced()
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := p.Count(`select count(*) from outbox.deferred`); n < 200 {
			return fmt.Errorf("%d messages are deferred", n)
		}
		return nil
	})
	p.Insert(messages[200:]...)
	p.awaitReplayed()
	p.failOver()
	p.moveTo(p.standby)
	p.awaitEpoch(2)
	p.Queue.RemoveFault(down)
	p.Insert(scenario.Message{Key: "after", OrderingKey: "a"})
	p.Settle()
	noDeadLetters(t, p.World)
}

// What the standby had not received is lost with the primary, as the database
// says it is. What of it was sent before stays sent; that cannot be undone. The new
// primary gives the same ids to other messages: none of them is taken for
// handled. From 17 on the slot waits for the standby, so nothing was sent.
func TestFailover_LostWithThePrimary(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	r := process(t, p.World, nil)
	p.Insert(scenario.Batch("before", 20, "a", "b")...)
	p.AwaitAccepted()
	p.AwaitMarked()
	p.awaitSynced()
	p.awaitReplayed()
	standby := p.on(p.standby)
	for _, sql := range []string{`alter system set primary_conninfo = ''`, `select pg_reload_conf()`} {
		if _, err := standby.Exec(context.Background(), sql); err != nil {
			t.Fatal(err)
		}
	}
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := p.Count(`select count(*) from pg_stat_replication where application_name = 'standby'`); n > 0 {
			return errors.New("the standby still follows")
		}
		return nil
	})

	var lost []string
	for i := range 100 { // a sequence is logged 32 numbers ahead, so the later ids come again
		m := scenario.Message{Key: fmt.Sprintf("lost-%d", i), OrderingKey: "a"}
		lost = append(lost, m.Key)
		if err := scenario.Write(context.Background(), p.Conn, m); err != nil {
			t.Fatal(err)
		}
	}
	last := p.Count(`select max(id) from outbox.messages`)
	if !p.failover {
		p.AwaitRequest("lost-99")
		pgtest.Eventually(t, scenario.Patience, func() error {
			if n := p.Count(`select count(*) from outbox.dispatched`); n < 120 {
				return fmt.Errorf("%d marks", n)
			}
			return nil
		})
	}
	p.failOver()
	p.moveTo(p.standby)
	p.awaitEpoch(2)
	p.Forget(lost...)
	p.Insert(scenario.Batch("after", 100, "a", "b", "")...)
	if first := p.Count(`select min(id) from outbox.messages where key like 'after-%'`); first > last {
		t.Errorf("the ids are others, from %d on: the test shows little", first)
	}
	p.Settle()
	noDeadLetters(t, p.World)
	for _, key := range lost {
		if sent := p.Requests(key) > 0; sent == p.failover {
			t.Errorf("%s: sent is %t, and the slot waits for the standby is %t", key, sent, p.failover)
		}
	}
	if lines := linesWith(r, "recovered"); len(lines) > 0 && p.failover {
		t.Errorf("a false alarm: %s", lines[0].Text)
	}
}

// The first host in the URL takes connections and says nothing, as a machine does
// that hangs or is behind a broken network: the relay gets past it, at its start
// and when its connections break.
func TestFailover_AHostThatHangs(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	proxy := w.Proxy()
	proxy.Freeze()
	direct := w.Conn.Config()
	w.Env["DATABASE_URL"] = fmt.Sprintf("postgres://postgres@%s,%s/%s?sslmode=disable",
		proxy.Addr(), net.JoinHostPort(direct.Host, strconv.Itoa(int(direct.Port))), direct.Database)
	w.Env["RELAY_CONNECT_TIMEOUT"] = "3s"
	r := w.Start()
	awaitLife(t, w, "first")
	w.Exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
	awaitLife(t, w, "second")
	w.Settle()
	if err := r.Alive(); err != nil {
		t.Error(err)
	}
}
