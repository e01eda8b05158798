package scenario_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

// claimEvents is how many events are handled. docs/performance.md has the figures
// of 100,000.
var claimEvents = flag.Int("claims", 2000, "how many events TestClaims_OneChangePerEvent has")

const (
	claimProcesses  = 4
	claimWorkers    = 8 // in each process
	claimDeliveries = 3 // of each event
	// claimDatabase is the environment variable that makes this program one of
	// the processes.
	claimDatabase = "SCENARIO_CLAIMS_DATABASE"
	claimConsumer = "books"
)

// handleDeliveries is a consumer in a process of its own. Its input is the ids of
// events, its output what became of each delivery.
func handleDeliveries(in io.Reader, out io.Writer) error {
	config, err := pgx.ParseConfig(os.Getenv(claimDatabase))
	if err != nil {
		return err
	}
	config.RuntimeParams["application_name"] = claimConsumer
	events, answers := make(chan string), make(chan string)
	var workers sync.WaitGroup
	for range claimWorkers {
		workers.Go(func() { handleEach(context.Background(), config, events, answers) })
	}
	go func() {
		for lines := bufio.NewScanner(in); lines.Scan(); {
			events <- lines.Text()
		}
		close(events)
		workers.Wait()
		close(answers)
	}()
	for line := range answers {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

// handleEach handles events on a connection of its own.
func handleEach(ctx context.Context, config *pgx.ConnConfig, events <-chan string, answers chan<- string) {
	var conn *pgx.Conn
	for event := range events {
		if conn == nil || conn.IsClosed() {
			conn = connectAgain(ctx, config)
		}
		outcome, _ := consumer.Once(ctx, conn, claimConsumer, time.Hour, consumer.Message{ID: event}, change)
		answers <- outcome.String() + " " + event
	}
	if conn != nil {
		_ = conn.Close(ctx)
	}
}

// connectAgain waits until the server takes a connection. Without a server the
// process ends.
func connectAgain(ctx context.Context, config *pgx.ConnConfig) *pgx.Conn {
	ctx, cancel := context.WithTimeout(ctx, scenario.Patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.ConnectConfig(ctx, config.Copy())
		if err == nil {
			return conn
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			panic(err)
		}
	}
}

// change is the business change that may happen once, with a result beside its
// claim that says who made it.
func change(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
	if _, err := tx.Exec(ctx, `insert into changes (event, by) values ($1, $2)`, m.ID, os.Getpid()); err != nil {
		return err
	}
	return outbox.Complete(ctx, tx, claimConsumer, m.ID, os.Getpid())
}

// deliveries hands out events, each several times, until every delivery is over.
// Those whose process died, and those that failed, are handed out again.
type deliveries struct {
	mu       sync.Mutex
	left     []string
	over     int
	handled  map[string]int
	failed   int
	returned int // from the dead
	all      int
	done     context.CancelFunc // once all are over
}

func newDeliveries(events int, random *rand.Rand, done context.CancelFunc) *deliveries {
	d := &deliveries{handled: map[string]int{}, all: events * claimDeliveries, done: done}
	for i := range d.all {
		d.left = append(d.left, fmt.Sprint("e-", i%events))
	}
	random.Shuffle(d.all, func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	return d
}

func (d *deliveries) next() (event string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.left) == 0 {
		return "", false
	}
	event, d.left = d.left[0], d.left[1:]
	return event, true
}

// note takes the answer of a process.
func (d *deliveries) note(outcome, event string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch outcome {
	case "handled":
		d.handled[event]++
		d.over++
	case "repeated":
		d.over++
	default:
		d.failed++
		d.left = append(d.left, event)
	}
	if d.over == d.all {
		d.done()
	}
}

func (d *deliveries) giveBack(hands map[string]int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for event, n := range hands {
		for range n {
			d.left = append(d.left, event)
			d.returned++
		}
	}
}

// await waits until so many deliveries are over.
func (d *deliveries) await(t *testing.T, n int) {
	t.Helper()
	pgtest.Eventually(t, scenario.Patience, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.over < n {
			return fmt.Errorf("%d deliveries of %d are over, want %d", d.over, d.all, n)
		}
		return nil
	})
}

// place is where one consumer runs: when it dies, the next one starts.
type place struct {
	url  string
	life context.Context // the test's

	mu      sync.Mutex
	running *exec.Cmd
}

// kill kills the consumer that runs there now.
func (p *place) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running.Process.Kill()
}

// run lets one consumer after another work until ctx ends.
func (p *place) run(ctx context.Context, d *deliveries) error {
	for ctx.Err() == nil {
		if err := p.serve(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// serve starts a consumer and gives it deliveries until it dies, or ctx ends.
func (p *place) serve(ctx context.Context, d *deliveries) error {
	command := exec.CommandContext(p.life, os.Args[0])
	command.Env = append(os.Environ(), claimDatabase+"="+p.url)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	p.mu.Lock()
	err = command.Start()
	p.running = command
	p.mu.Unlock()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = in.Close() })() // its end, if it has not died
	hands := map[string]int{}
	deliver := func() {
		if event, ok := d.next(); ok {
			hands[event]++
			_, _ = fmt.Fprintln(in, event) // the dead give it back
		}
	}
	for range 2 * claimWorkers {
		deliver()
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		outcome, event, _ := strings.Cut(lines.Text(), " ")
		if hands[event]--; hands[event] == 0 {
			delete(hands, event)
		}
		d.note(outcome, event)
		deliver()
	}
	_ = command.Wait() // it was killed, or its input ended
	d.giveBack(hands)
	return nil
}

// Thirty-two workers in four processes get each event three times. Most events
// have an expired claim, which the relay's retention is removing together with
// many others. Connections are terminated in the middle of transactions, processes
// are killed, the server crashes: each event changes the business once, and what
// is stored with its claim is of the transaction that made the change.
func TestClaims_OneChangePerEvent(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	w := scenario.On(t, cluster.Migrated(t)).With(map[string]string{"RELAY_RECONNECT_MAX": "500ms"})
	events := *claimEvents
	w.Exec(`create table changes (event text not null, by int not null)`)
	w.Exec(`insert into outbox.claims (consumer, event_id, expires_at, result)
		select $2, case i % 10 when 0 then 'e-' || i / 10 else 'old-' || i end, now() - interval '1 day' + i * interval '1 microsecond', '"old"'
		from generate_series(1, 10 * $1::int) i`, events, claimConsumer)
	relay := w.Start()

	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	ctx, done := context.WithCancel(context.Background())
	defer done()
	d := newDeliveries(events, rand.New(rand.NewPCG(seed, 0)), done)
	var group errgroup.Group
	places := make([]*place, claimProcesses)
	for i := range places {
		places[i] = &place{url: w.URL, life: t.Context()}
		group.Go(func() error { return places[i].run(ctx, d) })
	}
	terminated := 0
	terminate := func() error {
		n, err := terminateClaims(w)
		terminated += n
		return err
	}
	kill := func(i int) func() error { return func() error { return places[i].kill() } }
	crash := func() error { return cluster.Restart("immediate") }
	faults := []func() error{terminate, kill(0), terminate, kill(1), crash, kill(2), terminate, kill(3), terminate}
	began := time.Now()
	for i, fault := range faults {
		d.await(t, d.all*(i+1)/(len(faults)+1))
		if err := fault(); err != nil {
			t.Errorf("fault %d: %v", i, err)
		}
	}
	d.await(t, d.all)
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d deliveries of %d events in %.1f s; %d failed, %d came back from the dead, %d connections terminated",
		d.all, events, time.Since(began).Seconds(), d.failed, d.returned, terminated)
	if d.failed == 0 || d.returned == 0 || terminated == 0 {
		t.Error("the faults hit nobody")
	}
	for event, n := range d.handled {
		if n > 1 {
			t.Errorf("%s was handled %d times", event, n)
		}
	}
	checkClaims(t, w, events)
	if err := relay.Alive(); err != nil {
		t.Error(err)
	}
}

// terminateClaims ends connections whose transactions are open.
func terminateClaims(w *scenario.World) (n int, err error) {
	conn, err := pgx.Connect(context.Background(), w.URL)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.Background())
	for tries := 0; n == 0 && tries < 1000 && err == nil; tries++ { // a moment may have none
		err = conn.QueryRow(context.Background(), `select count(pg_terminate_backend(pid))
			from pg_stat_activity where application_name = $1 and xact_start is not null and pid % 2 = $2`, claimConsumer, tries%2).Scan(&n)
	}
	return n, err
}

// checkClaims compares the changes, the events and their claims.
func checkClaims(t *testing.T, w *scenario.World, events int) {
	t.Helper()
	w.Conn = w.Connect() // the server has crashed
	for what, sql := range map[string]string{
		"changes":             `select count(*) from changes`,
		"events with changes": `select count(distinct event) from changes`,
		"claims in force":     `select count(*) from outbox.claims where expires_at > now()`,
		"claims whose result is of the transaction that made the change": `select count(*) from changes join outbox.claims c
			on c.event_id = event and c.result = to_jsonb(by)`,
	} {
		if got := w.Count(sql); got != int64(events) {
			t.Errorf("%d %s, want %d", got, what, events)
		}
	}
	pgtest.Eventually(t, scenario.Patience, func() error {
		if left := w.Count(`select count(*) from outbox.claims where expires_at < now()`); left != 0 {
			return fmt.Errorf("%d expired claims are left", left)
		}
		return nil
	})
}
