package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// rig is an emulated queue with a dead letter queue, and a ledger.
type rig struct {
	ledger
	server *emulator.Server
	url    string
}

func newRig(t *testing.T, settings ...func(*emulator.Settings)) rig {
	t.Helper()
	server := emulator.New(emulator.Config{Queues: []string{"books-dead"}, APIKey: "key"})
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	t.Cleanup(server.Close)
	now := server.Settings()
	now.MaxRetries = 3
	for _, change := range settings {
		change(&now)
	}
	if err := server.SetSettings(now); err != nil {
		t.Fatal(err)
	}
	r := rig{newLedger(t), server, web.URL}
	r.post("create", `{"name":"books","dead_letter_queue":"books-dead"}`)
	return r
}

func (r rig) post(act, body string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+"/v1/queue/"+act, bytes.NewBufferString(body))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer key")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: %s", act, response.Status)
	}
}

// publish publishes an event; the same one twice is two messages of the queue.
func (r rig) publish(event string) {
	r.t.Helper()
	r.post("publish", fmt.Sprintf(`{"queue":"books","payload":{"event_id":%q}}`, event))
}

func (r rig) queue() consumer.Queue {
	return consumer.Queue{BaseURL: r.url, Name: "books", APIKey: func() string { return "key" }}
}

// quick are settings that make a test short. The lease is long, so that it ends
// only where a test moves the queue's clock past leaseEnd.
func quick() consumer.LoopConfig {
	return consumer.LoopConfig{
		PollInterval: 10 * time.Millisecond, MaxPause: 50 * time.Millisecond, RetryDelay: time.Second,
		Lease: 10 * time.Hour, HandlerTimeout: time.Minute,
	}
}

const leaseEnd = 11 * time.Hour

// running is a loop at work.
type running struct {
	t    *testing.T
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	reports []consumer.Report
	trouble []error
}

func (r rig) run(c *consumer.Consumer, config consumer.LoopConfig) *running {
	r.t.Helper()
	return r.runOn(c, r.queue(), config)
}

func (r rig) runOn(c *consumer.Consumer, queue consumer.Queue, config consumer.LoopConfig) *running {
	r.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	run := &running{t: r.t, stop: stop, done: make(chan struct{})}
	config.Report = func(report consumer.Report) {
		run.mu.Lock()
		defer run.mu.Unlock()
		run.reports = append(run.reports, report)
	}
	config.Trouble = func(err error) {
		run.mu.Lock()
		defer run.mu.Unlock()
		run.trouble = append(run.trouble, err)
	}
	loop, err := consumer.NewLoop(c, queue, consumer.Plain(consumer.Field("event_id")), config)
	if err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(run.done)
		if err := loop.Run(ctx); err != nil {
			r.t.Errorf("run: %v", err)
		}
	}()
	r.t.Cleanup(run.end)
	return run
}

// end stops the loop and waits for it.
func (r *running) end() {
	r.t.Helper()
	r.stop()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.t.Fatal("the loop does not end")
	}
}

// count says how often an outcome was reported.
func (r *running) count(outcome consumer.Outcome) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, report := range r.reports {
		if report.Outcome == outcome {
			n++
		}
	}
	return n
}

func (r *running) wait(outcome consumer.Outcome, n int) {
	r.t.Helper()
	pgtest.Eventually(r.t, patience, func() error {
		if got := r.count(outcome); got < n {
			return fmt.Errorf("%d %s, want %d; trouble: %v", got, outcome, n, r.troubles())
		}
		return nil
	})
}

func (r *running) troubles() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]error(nil), r.trouble...)
}

// acked waits until the queue has taken so many acks.
func (r rig) acked(n int64) {
	r.t.Helper()
	pgtest.Eventually(r.t, patience, func() error {
		if got := r.server.Counters().Acked; got != n {
			return fmt.Errorf("%d acked, want %d", got, n)
		}
		return nil
	})
}

// Events that come twice are handled once and acked twice, in each form of the
// queue's answer.
func TestLoop_HandlesAndAcks(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"items", "messages", "array"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(s *emulator.Settings) { s.ConsumeKey = form })
			for i := range 20 {
				r.publish(fmt.Sprintf("e-%d", i))
				r.publish(fmt.Sprintf("e-%d", i))
			}
			run := r.run(r.once(book), quick())
			r.acked(40)
			run.end()
			if h, p := run.count(consumer.Handled), run.count(consumer.Repeated); h != 20 || p != 20 {
				t.Errorf("%d handled and %d repeated, want 20 each", h, p)
			}
			if trouble := run.troubles(); len(trouble) > 0 {
				t.Errorf("trouble: %v", trouble)
			}
			r.want(20, 20)
		})
	}
}

// No more handlers run at once than there should, and no more messages are leased.
func TestLoop_Concurrency(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 30 {
		r.publish(fmt.Sprintf("e-%d", i))
	}
	var now, most atomic.Int32
	reached := make(chan struct{})
	config := quick()
	config.Concurrency = 3
	r.run(r.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if n == 3 {
			select {
			case <-reached:
			default:
				close(reached)
			}
		}
		<-reached // the first ones wait until all three are there
		return book(ctx, tx, m)
	}), config)
	r.acked(30)
	if got := most.Load(); got != 3 {
		t.Errorf("%d handlers at once, want 3", got)
	}
	for _, entry := range r.server.Journal().Entries(0, 1000) {
		if entry.Route == "queue.consume" && !bytes.Contains(entry.Body, []byte(`"max_messages":1,`)) &&
			!bytes.Contains(entry.Body, []byte(`"max_messages":2,`)) && !bytes.Contains(entry.Body, []byte(`"max_messages":3,`)) {
			t.Errorf("asked for more than can be started: %s", entry.Body)
		}
	}
}

// What fails is nacked and comes again; what keeps failing goes to the dead letter
// queue, without a claim, and holds nobody up.
func TestLoop_FailuresComeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var tries atomic.Int32
	for _, event := range []string{"shaky", "hopeless", "panics", "good"} {
		r.publish(event)
	}
	r.post("publish", `{"queue":"books","payload":{"event":"without an id"}}`)
	run := r.run(r.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		switch err := book(ctx, tx, m); m.ID {
		case "hopeless":
			return consumer.Permanent(errors.Join(err, errBroken))
		case "panics":
			panic(m.ID)
		case "shaky":
			if tries.Add(1) < 3 {
				return errBroken
			}
			return err
		default:
			return err
		}
	}), quick())
	pgtest.Eventually(t, patience, func() error {
		if err := r.server.Clock().Advance(time.Second); err != nil {
			return err
		}
		if got := r.server.Counters().DeadLettered; got != 3 {
			return fmt.Errorf("%d dead letters, want 3", got)
		}
		return nil
	})
	r.eventually(2)
	r.acked(2)
	run.end()
	r.want(2, 2)
	if got := run.count(consumer.Refused); got != 8 {
		t.Errorf("%d refused, want 2 messages with 4 deliveries each", got)
	}
}

// Two loops race after a lease has ended during the work of the first: the work
// is done once.
func TestLoop_LeaseEndsDuringTheWork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.publish("e-1")
	begun, release := make(chan struct{}), make(chan struct{})
	alone := quick()
	alone.Concurrency = 1 // else it might get the second delivery too
	first := r.run(r.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		close(begun)
		<-release
		return book(ctx, tx, m)
	}), alone)
	<-begun
	if err := r.server.Clock().Advance(leaseEnd); err != nil {
		t.Fatal(err)
	}
	second := r.run(r.once(book), quick())
	// The second delivery waits for the claim of the first.
	pgtest.Eventually(t, patience, func() error {
		var waiting int
		err := r.pool.QueryRow(context.Background(),
			"select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").Scan(&waiting)
		if err == nil && waiting == 0 {
			err = errors.New("nobody waits for a claim")
		}
		return err
	})
	close(release)
	first.wait(consumer.Handled, 1)
	second.wait(consumer.Repeated, 1)
	first.end()
	second.end()
	r.want(1, 1)
}

// A consumer dies after its commit and before its ack: the event comes again and
// is a repeat.
func TestLoop_AckIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.publish("e-1")
	for range 2 { // the ack and its repeat
		if _, err := r.server.AddFault(emulator.Fault{Route: "queue.ack", Status: http.StatusBadGateway, Body: emulator.BodyHTML, Count: 1}); err != nil {
			t.Fatal(err)
		}
	}
	run := r.run(r.once(book), quick())
	run.wait(consumer.Handled, 1)
	pgtest.Eventually(t, patience, func() error {
		for _, err := range run.troubles() {
			if answer, ok := errors.AsType[*consumer.QueueError](err); ok && answer.Act == "ack" && answer.Status == http.StatusBadGateway {
				return nil
			}
		}
		return fmt.Errorf("the lost ack was not told: %v", run.troubles())
	})
	if err := r.server.Clock().Advance(leaseEnd); err != nil {
		t.Fatal(err)
	}
	run.wait(consumer.Repeated, 1)
	r.acked(1)
	run.end()
	r.want(1, 1)
}

// The queue misbehaves in every way, and the loop goes on.
func TestLoop_QueueMisbehaves(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]emulator.Fault{
		"429":                {Status: http.StatusTooManyRequests, RetryAfter: "0.02"},
		"402":                {Status: http.StatusPaymentRequired},
		"500 with a page":    {Status: http.StatusInternalServerError, Body: emulator.BodyHTML},
		"200 with a page":    {Status: http.StatusOK, Body: emulator.BodyHTML},
		"200 and a refusal":  {Status: http.StatusOK, Body: emulator.BodyRefusal},
		"an empty body":      {Status: http.StatusOK, Body: emulator.BodyEmpty},
		"half an answer":     {Status: http.StatusOK, Body: emulator.BodyTruncated},
		"a reset":            {Cut: emulator.CutReset},
		"a redirect":         {Status: http.StatusFound, Header: http.Header{"Location": {"http://127.0.0.1:1/"}}},
		"leased, then reset": {Cut: emulator.CutReset, Store: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			fault.Route, fault.Count = "queue.consume", 3
			if _, err := r.server.AddFault(fault); err != nil {
				t.Fatal(err)
			}
			r.publish("e-1")
			run := r.run(r.once(book), quick())
			pgtest.Eventually(t, patience, func() error {
				if got := len(run.troubles()); got != 3 {
					return fmt.Errorf("%d times trouble, want 3: %v", got, run.troubles())
				}
				return nil
			})
			// Some of these answers leased the message to nobody.
			if err := r.server.Clock().Advance(leaseEnd); err != nil {
				t.Fatal(err)
			}
			r.acked(1)
			run.end()
			r.want(1, 1)
		})
	}
}

// An answer that took most of the lease is left alone: its work might outlast it.
func TestLoop_LateMessagesAreLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if _, err := r.server.AddFault(emulator.Fault{Route: "queue.consume", Delay: 600 * time.Millisecond, Count: 1, Store: true}); err != nil {
		t.Fatal(err)
	}
	r.publish("e-1")
	config := quick()
	config.HandlerTimeout = config.Lease - 500*time.Millisecond
	run := r.run(r.once(book), config)
	late := func() (n int) {
		for _, err := range run.troubles() {
			if errors.Is(err, consumer.ErrLate) {
				n++
			}
		}
		return n
	}
	pgtest.Eventually(t, patience, func() error {
		if late() == 0 {
			return fmt.Errorf("nothing was late: %v", run.troubles())
		}
		return nil
	})
	if n := run.count(consumer.Handled); n != 0 {
		t.Errorf("%d handled although too late", n)
	}
	ended := 0
	pgtest.Eventually(t, patience, func() error {
		if n := late(); n > ended { // also what a busy machine has made late
			ended = n
			if err := r.server.Clock().Advance(leaseEnd); err != nil {
				return err
			}
		}
		if got := r.server.Counters().Acked; got != 1 {
			return fmt.Errorf("%d acked, want 1", got)
		}
		return nil
	})
	r.want(1, 1)
}

// At a stop the work in hand ends and is acked, and nothing new is taken.
func TestLoop_StopFinishesTheWork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.publish("e-1")
	r.publish("e-2")
	begun, release := make(chan struct{}), make(chan struct{})
	config := quick()
	config.Concurrency = 1
	run := r.run(r.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		begun <- struct{}{}
		<-release
		return book(ctx, tx, m)
	}), config)
	<-begun
	run.stop()
	close(release)
	run.end()
	r.acked(1)
	r.want(1, 1)
}

// A request that is under way at a stop is not cut off: what it leases is handled.
func TestLoop_StopDuringARequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if _, err := r.server.AddFault(emulator.Fault{Route: "queue.consume", Delay: 300 * time.Millisecond, Count: 1, Store: true}); err != nil {
		t.Fatal(err)
	}
	r.publish("e-1")
	run := r.run(r.once(book), quick())
	pgtest.Eventually(t, patience, func() error {
		if r.server.Counters().Consumed == 0 {
			return errors.New("nothing is leased")
		}
		return nil
	})
	run.end()
	if got := r.server.Counters().Acked; got != 1 {
		t.Errorf("%d acked, want 1", got)
	}
	r.want(1, 1)
}

// What is not ready when the drain ends is rolled back and given back.
func TestLoop_StopIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.publish("e-1")
	begun := make(chan struct{})
	config := quick()
	config.DrainTimeout = 20 * time.Millisecond
	run := r.run(r.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		close(begun)
		<-ctx.Done()
		return errors.Join(book(context.WithoutCancel(ctx), tx, m), ctx.Err())
	}), config)
	<-begun
	run.end()
	r.want(0, 0)
	if got := r.server.Counters().Nacked; got != 1 {
		t.Errorf("%d nacked, want 1", got)
	}
	next := r.run(r.once(book), quick())
	next.wait(consumer.Handled, 1)
	r.want(1, 1)
}

// While the database is away nothing is consumed, so that no message loses its
// tries; when it is back, all are handled.
func TestLoop_DatabaseAway(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	r := newRig(t)
	r.ledger = openLedger(t, server.Migrated(t))
	if err := server.Stop("immediate"); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		r.publish(fmt.Sprintf("e-%d", i))
	}
	run := r.run(r.once(book), quick())
	pgtest.Eventually(t, patience, func() error {
		if got := len(run.troubles()); got < 5 {
			return fmt.Errorf("%d times trouble, want 5", got)
		}
		return nil
	})
	for _, err := range run.troubles() {
		if !errors.Is(err, consumer.ErrNoTransaction) {
			t.Errorf("trouble: %v", err)
		}
	}
	if got := r.server.Counters().Consumed; got != 0 {
		t.Errorf("%d consumed without a database", got)
	}
	if err := server.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.acked(10)
	r.want(10, 10)
}

// A database that takes no writes, as a standby, is like one that is away.
func TestLoop_DatabaseReadOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	writer, err := pgx.ParseConfig(r.pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	writer.RuntimeParams["default_transaction_read_only"] = "off"
	readOnly := func(value string) {
		t.Helper()
		conn, err := pgx.ConnectConfig(context.Background(), writer)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		statement := "alter database " + pgx.Identifier{writer.Database}.Sanitize() + " set default_transaction_read_only = " + value
		if _, err := conn.Exec(context.Background(), statement); err != nil {
			t.Fatal(err)
		}
		r.pool.Reset()
	}
	readOnly("on")
	r.publish("e-1")
	run := r.run(r.once(book), quick())
	pgtest.Eventually(t, patience, func() error {
		trouble := run.troubles()
		if len(trouble) < 3 || !errors.Is(trouble[0], consumer.ErrNoTransaction) {
			return fmt.Errorf("trouble: %v", trouble)
		}
		return nil
	})
	if got := r.server.Counters().Consumed; got != 0 {
		t.Errorf("%d consumed", got)
	}
	readOnly("off")
	r.acked(1)
	r.want(1, 1)
}

// The server dies again and again under the loop: one entry for each event.
func TestLoop_DatabaseDies(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	r := newRig(t, func(s *emulator.Settings) { s.MaxRetries = 1000 })
	r.ledger = openLedger(t, server.Migrated(t))
	for i := range 60 {
		r.publish(fmt.Sprintf("e-%d", i%30))
	}
	var calls atomic.Int32
	third := make(chan struct{}, 60)
	run := r.run(r.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		if calls.Add(1)%10 == 0 {
			third <- struct{}{}
		}
		return book(ctx, tx, m)
	}), quick())
	for range 2 {
		<-third
		if err := server.Restart("immediate"); err != nil {
			t.Fatal(err)
		}
	}
	pgtest.Eventually(t, patience, func() error {
		if err := r.server.Clock().Advance(time.Second); err != nil {
			return err
		}
		if got := r.server.Counters().Acked; got != 60 {
			return fmt.Errorf("%d acked, want 60", got)
		}
		return nil
	})
	run.end()
	r.want(30, 30)
}

// The key is asked for each request, and never goes into an error.
func TestLoop_KeyIsRotated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var key atomic.Pointer[string]
	key.Store(new("revoked-secret"))
	queue := r.queue()
	queue.APIKey = func() string { return *key.Load() }
	r.publish("e-1")
	run := r.runOn(r.once(book), queue, quick())
	pgtest.Eventually(t, patience, func() error {
		for _, err := range run.troubles() {
			if answer, ok := errors.AsType[*consumer.QueueError](err); ok && answer.Status == http.StatusUnauthorized {
				return nil
			}
		}
		return errors.New("no 401")
	})
	key.Store(new("key"))
	r.acked(1)
	for _, err := range run.troubles() {
		if bytes.Contains([]byte(err.Error()), []byte("revoked-secret")) {
			t.Errorf("the key is in an error: %v", err)
		}
	}
}

func TestNewLoop_ReportsEverything(t *testing.T) {
	t.Parallel()
	_, err := consumer.NewLoop(&consumer.Consumer{Retention: -1}, consumer.Queue{BaseURL: "https://user:secret@host"}, nil,
		consumer.LoopConfig{Concurrency: -1, Lease: 1500 * time.Millisecond, HandlerTimeout: time.Hour})
	for _, want := range []string{"Name", "DB", "Handler", "Retention", "BaseURL", "APIKey", "envelope", "Concurrency", "Lease", "HandlerTimeout"} {
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte(want)) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if bytes.Contains([]byte(fmt.Sprint(err)), []byte("secret")) {
		t.Errorf("the secret is in %v", err)
	}
}
