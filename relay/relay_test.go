package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/vital"
	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

// patience bounds what a test waits for.
const patience = time.Minute

// fakeSource is a stream that the test writes.
type fakeSource struct {
	created  bool
	position string
	announce func(context.Context) error
	allow    func(ctx context.Context, system string, timeline int32) error

	mu       sync.Mutex
	opened   int
	closed   int
	resolved map[uint64]bool
	heard    time.Time
	batches  chan []outbox.Row
	broken   chan error    // ends the session
	busy     chan struct{} // nil, or what every Open but the first waits for

	condition atomic.Pointer[relay.Condition] // nil: all is well
}

func newFakeSource() *fakeSource {
	return &fakeSource{resolved: map[uint64]bool{}, position: "0/1234", batches: make(chan []outbox.Row), broken: make(chan error)}
}

func (s *fakeSource) Open(ctx context.Context) error {
	s.mu.Lock()
	again := s.opened > 0
	s.mu.Unlock()
	if again && s.busy != nil {
		select {
		case <-s.busy:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	s.resolved = map[uint64]bool{}
	return ctx.Err()
}

func (s *fakeSource) BeforeCreate(_ func(context.Context) (bool, error), announce func(context.Context) error) {
	s.announce = announce
}

func (s *fakeSource) BeforeTake(allow func(context.Context, string, int32) error) { s.allow = allow }

func (s *fakeSource) StartPosition() string { return s.position }

func (s *fakeSource) Created() bool { return s.created }

func (s *fakeSource) Next(ctx context.Context) ([]outbox.Row, error) {
	select {
	case rows := <-s.batches:
		return rows, nil
	case err := <-s.broken:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *fakeSource) Resolve(numbers []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range numbers {
		if s.resolved[n] {
			panic(fmt.Sprintf("message %d resolved twice", n))
		}
		s.resolved[n] = true
	}
}

func (s *fakeSource) Position() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position
}

func (s *fakeSource) moveOn(position string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.position = position
}

func (s *fakeSource) Condition() relay.Condition {
	if condition := s.condition.Load(); condition != nil {
		return *condition
	}
	return relay.Condition{Doing: vital.Streaming}
}

func (s *fakeSource) LastWord() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard.IsZero() {
		return time.Now()
	}
	return s.heard
}

func (s *fakeSource) hear(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = at
}

func (s *fakeSource) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return nil
}

func (s *fakeSource) awaitResolved(t *testing.T, n int) {
	t.Helper()
	pgtest.Eventually(t, patience, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.resolved) != n {
			return fmt.Errorf("%d messages are resolved, want %d", len(s.resolved), n)
		}
		return nil
	})
}

// publisherFunc is a publisher.
type publisherFunc func(context.Context, *outbox.Row) (relay.Receipt, error)

func (f publisherFunc) Publish(ctx context.Context, row *outbox.Row) (relay.Receipt, error) {
	return f(ctx, row)
}

// accept takes every message and counts the requests for each id.
type accept struct {
	mu       sync.Mutex
	requests map[int64]int
	order    []int64
}

func (a *accept) Publish(_ context.Context, row *outbox.Row) (relay.Receipt, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.requests == nil {
		a.requests = map[int64]int{}
	}
	a.requests[row.ID]++
	a.order = append(a.order, row.ID)
	return relay.Receipt{QueueMessageID: fmt.Sprintf("msg\t%d\\", row.ID)}, nil
}

// bundle is a relay between a fake source and a database.
type bundle struct {
	t      *testing.T
	conn   *pgx.Conn
	cfg    relay.Config
	source *fakeSource
	moving *relay.Relay
	minute chan time.Time // closed when the relay has lived long enough
	stop   context.CancelFunc
	ended  chan struct{}
	err    error
}

func setup(t *testing.T) *bundle {
	t.Helper()
	url := pgtest.Migrated(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return &bundle{t: t, conn: conn, source: newFakeSource(), minute: make(chan time.Time), ended: make(chan struct{}), cfg: relay.Config{
		Schema: "outbox", Slot: "s", Holder: "test", Version: "test",
		MaxInFlight: 8, MaxInFlightPerQueue: 8, WindowMessages: 100, WindowBytes: 1 << 20,
		OutcomeLinger: time.Millisecond, OutcomeBatch: 50,
		RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond, ConflictAttempts: 3,
		BreakerFailures: 5, ProbeMin: time.Millisecond, ProbeMax: 10 * time.Millisecond,
		DeferAfter: time.Hour, OverflowAfter: time.Hour, DeferMin: 10 * time.Millisecond, DeferMax: 50 * time.Millisecond,
		MaxAttempts: 20, KeyWindow: time.Hour, SweepInterval: time.Hour,
		TrustWindow: time.Second, DrainTimeout: 300 * time.Millisecond,
	}}
}

// start runs the relay until the test's end or stopped.
func (b *bundle) start(publisher relay.Publisher) {
	b.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	moving := relay.New(b.cfg, b.conn.Config(), b.source, publisher, zap.NewNop())
	b.moving = moving
	moving.Survival(func(time.Duration) <-chan time.Time { return b.minute })
	moving.Farewell(3 * patience)
	go func() {
		defer close(b.ended)
		b.err = moving.Run(ctx)
	}()
	b.t.Cleanup(func() { stop(); <-b.ended })
}

func (b *bundle) stopped() error {
	b.stop()
	<-b.ended
	return b.err
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.conn.Exec(context.Background(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bundle) count(sql string, args ...any) (n int) {
	b.t.Helper()
	if err := b.conn.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (b *bundle) awaitCount(want int, sql string, args ...any) {
	b.t.Helper()
	pgtest.Eventually(b.t, patience, func() error {
		if got := b.count(sql, args...); got != want {
			return fmt.Errorf("%s: %d, want %d", sql, got, want)
		}
		return nil
	})
}

const countDispatched = `select count(*) from outbox.dispatched`

func rows(from, to int64) []outbox.Row {
	var all []outbox.Row
	for id := from; id <= to; id++ {
		all = append(all, outbox.Row{ID: id, Key: fmt.Sprintf("k%d", id), Queue: "q", OrderingKey: "o", Payload: "{}"})
	}
	return all
}

func TestRelay_MarksWhatTheQueueAccepted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start(&accept{})
	b.source.batches <- rows(1, 60)
	b.source.awaitResolved(t, 60)
	if got := b.count(countDispatched + ` where attempts = 1 and not possible_duplicate and queue_message_id = E'msg\t' || message_id || '\'`); got != 60 {
		t.Errorf("%d messages are marked with what the queue said, want 60", got)
	}
	if got := b.count(`select count(*) from outbox.relays where slot = 's' and epoch = 1 and holder = 'test' and confirmed_lsn = '0/1234'`); got != 1 {
		t.Error("the relay's row does not say who it is and where")
	}
	if err := b.stopped(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if b.source.closed != 1 {
		t.Errorf("the source was closed %d times", b.source.closed)
	}
}

func TestRelay_RefusedMessageBecomesADeadLetterAndItsLaneGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ok := &accept{}
	b.start(publisherFunc(func(ctx context.Context, row *outbox.Row) (relay.Receipt, error) {
		if row.ID == 2 {
			return relay.Receipt{}, &relay.PublishError{Class: relay.Refused, Status: 422, Code: "BAD", Message: "line one\nline two\x00", RequestID: "r-1"}
		}
		return ok.Publish(ctx, row)
	}))
	b.source.batches <- rows(1, 3)
	b.source.awaitResolved(t, 3)
	var reason, text, code, request string
	var status, attempts int
	err := b.conn.QueryRow(t.Context(), `select reason, last_error, last_code, request_id, last_status, attempts from outbox.dead_letters where message_id = 2`).
		Scan(&reason, &text, &code, &request, &status, &attempts)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(reason, "|", text, "|", code, "|", request, "|", status, "|", attempts)
	if want := "refused|status 422: BAD: line one line two |BAD|r-1|422|1"; got != want {
		t.Errorf("dead letter %q, want %q", got, want)
	}
	if got := b.count(countDispatched); got != 2 {
		t.Errorf("%d messages are marked, want 2", got)
	}
}

// CDC-04: however long the queue hangs, no more than the window is taken in.
func TestRelay_WindowBoundsWhatIsTakenIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.WindowMessages = 10
	b.start(publisherFunc(func(ctx context.Context, _ *outbox.Row) (relay.Receipt, error) {
		<-ctx.Done()
		return relay.Receipt{}, &relay.PublishError{Class: relay.UnknownOutcome, Err: ctx.Err()}
	}))
	b.source.batches <- rows(1, 10)
	b.source.batches <- rows(11, 12) // read, and kept at the door
	select {
	case b.source.batches <- rows(13, 14):
		t.Error("a third batch was taken while the window is full")
	case <-time.After(100 * time.Millisecond): // a chance to be wrong, not a wait for something
	}
	if err := b.stopped(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// OPS-07: requests in flight finish after a stop, and their outcomes are
// written; nothing new is sent.
func TestRelay_Stop_DrainsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.DrainTimeout = patience
	flying, answer := make(chan int64), make(chan struct{})
	b.start(publisherFunc(func(_ context.Context, row *outbox.Row) (relay.Receipt, error) {
		flying <- row.ID
		<-answer
		return relay.Receipt{}, nil
	}))
	go func() { b.source.batches <- rows(1, 5) }()
	if id := <-flying; id != 1 {
		t.Fatalf("message %d went out first", id)
	}
	b.stop()
	close(answer)
	select {
	case id := <-flying:
		t.Errorf("message %d was sent after the stop", id)
	case <-b.ended:
	}
	if got := b.count(countDispatched + ` where message_id = 1`); got != 1 {
		t.Error("the accepted message is not marked")
	}
}

// OPS-07: a queue that hangs does not hold a stop longer than the drain timeout.
func TestRelay_Stop_EndsAtTheDrainTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	flying := make(chan struct{}, 1)
	b.start(publisherFunc(func(ctx context.Context, _ *outbox.Row) (relay.Receipt, error) {
		flying <- struct{}{}
		<-ctx.Done()
		return relay.Receipt{}, &relay.PublishError{Class: relay.UnknownOutcome, Err: ctx.Err()}
	}))
	b.source.batches <- rows(1, 1)
	<-flying
	began := time.Now()
	if err := b.stopped(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if took := time.Since(began); took < 300*time.Millisecond || took > patience {
		t.Errorf("the stop took %s with a drain timeout of 300ms", took)
	}
	if got := b.count(countDispatched); got != 0 {
		t.Errorf("%d messages are marked, want none", got)
	}
}

// OUT-08: the stream breaks after the queue accepted and before the mark: the
// next session marks without a second request.
func TestRelay_BrokenStream_AcceptedIsMarkedWithoutASecondRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.OutcomeLinger = time.Hour
	b.cfg.OutcomeBatch = 4
	queue := &accept{}
	sent := make(chan struct{}, 10)
	b.start(publisherFunc(func(ctx context.Context, row *outbox.Row) (relay.Receipt, error) {
		defer func() { sent <- struct{}{} }()
		return queue.Publish(ctx, row)
	}))
	b.source.batches <- rows(1, 3)
	for range 3 {
		<-sent
	}
	b.source.broken <- errors.New("broken")
	b.source.batches <- rows(1, 4) // the slot shows them again
	b.source.awaitResolved(t, 4)
	for id := int64(1); id <= 4; id++ {
		if got := queue.requests[id]; got != 1 {
			t.Errorf("%d requests for message %d, want 1", got, id)
		}
	}
	if got := b.count(countDispatched + ` where queue_message_id is not null`); got != 4 {
		t.Errorf("%d messages are marked with the queue's id, want 4", got)
	}
}

// The session ends before it learns that the marks of messages from the table were
// committed: nobody reads them again, and they are not remembered for ever.
func TestRelay_BrokenStream_ForgetsWhatIsMarked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.OutcomeLinger, b.cfg.DrainTimeout = time.Hour, patience
	b.exec(`insert into outbox.relays (slot, reconciled_at) values ('s', now())`)
	b.exec(`insert into outbox.messages (key, queue, payload) select 'k' || i, 'q', '{}' from generate_series(1, 2) i`)
	b.exec(`insert into outbox.deferred (message_id, queue, reason) select id, 'q', 'recovered' from outbox.messages`)
	sent := make(chan struct{}, 10)
	b.start(publisherFunc(func(context.Context, *outbox.Row) (relay.Receipt, error) {
		sent <- struct{}{}
		return relay.Receipt{}, nil
	}))
	<-sent
	<-sent
	b.exec(`with gone as (delete from outbox.deferred where message_id = 1 returning message_id)
		insert into outbox.dispatched (message_id, attempts) select message_id, 1 from gone`)
	b.source.broken <- errors.New("broken")
	b.awaitCount(2, `select epoch from outbox.relays`)
	pgtest.Eventually(t, patience, func() error {
		if n := b.moving.Carried(); n != 0 {
			return fmt.Errorf("%d outcomes are remembered, want none", n)
		}
		return nil
	})
	b.awaitState("at the writer", func(s *relay.State) bool { return s.Writer.Pending == 1 })
	if err := b.stopped(); err != nil {
		t.Error(err)
	}
	if n := b.count(countDispatched); n != 2 || len(sent) != 0 {
		t.Errorf("%d messages are marked and %d sent again, want 2 and none", n, len(sent))
	}
}

// OUT-08: the SQL connection dies again and again; everything is marked once it
// lives, without a second request.
func TestRelay_BrokenConnection_MarksLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	queue := &accept{}
	b.start(queue)
	for batch := range int64(20) {
		b.source.batches <- rows(batch*10+1, batch*10+10)
		b.exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name like 'outbox-relay%'`)
	}
	b.source.awaitResolved(t, 200)
	for id, n := range queue.requests {
		if n != 1 {
			t.Errorf("%d requests for message %d, want 1", n, id)
		}
	}
	if got := b.count(countDispatched); got != 200 {
		t.Errorf("%d messages are marked, want 200", got)
	}
}

// OPS-08: another relay raised the epoch: nothing is written any more, and the
// session ends.
func TestRelay_LostEpoch_WritesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sent, accepted := make(chan struct{}), make(chan struct{})
	b.start(publisherFunc(func(context.Context, *outbox.Row) (relay.Receipt, error) {
		sent <- struct{}{}
		<-accepted
		return relay.Receipt{}, nil
	}))
	b.source.batches <- rows(1, 1)
	<-sent
	b.exec(`update outbox.relays set epoch = epoch + 1`)
	close(accepted)
	b.awaitCount(3, `select epoch from outbox.relays`) // ours was 1, the other's 2, and we took over again
	if got := b.count(countDispatched); got != 0 {
		t.Errorf("%d messages were marked under an epoch that was lost", got)
	}
	if b.source.closed == 0 {
		t.Error("the session did not end")
	}
}

// Without a word from the server for as long as the trust window nothing is
// sent: another relay may have the slot.
func TestRelay_NothingIsSentWithoutTrust(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.source.hear(time.Now().Add(-time.Hour))
	queue := &accept{}
	b.start(queue)
	b.source.batches <- rows(1, 10)
	b.source.batches <- rows(11, 20) // taken in, so the first ones are with the workers
	queue.mu.Lock()
	sent := len(queue.order)
	queue.mu.Unlock()
	if sent > 0 {
		t.Errorf("%d messages were sent", sent)
	}
	b.source.hear(time.Time{}) // from now on it is heard all the time
	b.source.awaitResolved(t, 20)
}

// OPS-13: what was committed before the slot is delivered first, in id order,
// and a message that both the table and the stream show goes out once.
func TestRelay_NewSlot_DeliversWhatWasThereBefore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.source.created = true
	b.exec(`insert into outbox.messages (key, queue, ordering_key, payload) select 'old-' || i, 'q', 'o', '{}' from generate_series(1, 2500) i`)
	b.exec(`insert into outbox.dispatched (message_id, attempts) select id, 1 from outbox.messages where id <= 500`)
	queue := &accept{}
	b.start(queue)
	b.awaitCount(1, `select count(*) from outbox.relays where reconciled_at is not null`)
	b.exec(`insert into outbox.messages (key, queue, ordering_key, payload) select 'new-' || i, 'q', 'o', '{}' from generate_series(1, 10) i`)
	b.source.batches <- rows(2491, 2510)
	b.source.awaitResolved(t, 20)
	b.awaitCount(2510, countDispatched)
	b.awaitCount(0, `select count(*) from outbox.deferred`)
	if got := len(queue.order); got != 2010 {
		t.Errorf("%d requests, want 2,010", got)
	}
	for i, id := range queue.order {
		if want := int64(501 + i); id != want {
			t.Fatalf("request %d is message %d, want %d", i, id, want)
		}
	}
	if got := b.count(`select count(*) from outbox.relays where reconciled_at is not null`); got != 1 {
		t.Error("the reconciliation is not on record")
	}
}

// Killed while the server makes the slot: the next session does not see that it
// was made, and reconciles all the same.
func TestPromise4_AnnouncedSlotIsReconciled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into outbox.relays (slot, reconciled_at) values ('s', now())`)
	b.exec(`insert into outbox.messages (key, queue, payload) values ('old', 'q', '{}')`)
	queue := &accept{}
	relay.New(b.cfg, b.conn.Config(), b.source, queue, zap.NewNop())
	if err := b.source.announce(t.Context()); err != nil { // and then it is dead
		t.Fatal(err)
	}
	b.start(queue)
	b.awaitCount(1, countDispatched)
}

// A message that the application deleted while it was deferred is withdrawn.
func TestRelay_DeletedWhileDeferred_IsWithdrawn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into outbox.deferred (message_id, queue, reason) values (7, 'q', 'recovered')`)
	queue := &accept{}
	b.start(queue)
	b.awaitCount(0, `select count(*) from outbox.deferred`)
	if len(queue.order) != 0 {
		t.Error("a withdrawn message was sent")
	}
}

// A copy of the database on another cluster, whose transactions have lower numbers: a
// message that was deleted there is withdrawn here, and what is behind it goes out.
func TestRelay_DeletedOnAnotherCluster_IsWithdrawn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into outbox.messages (id, key, queue, payload) overriding system value values (8, 'k8', 'q', '{}')`)
	b.exec(`insert into outbox.deferred (message_id, queue, reason, xid) values (7, 'q', 'held', '9000000000'), (8, 'q', 'held', '9000000001')`)
	queue := &accept{}
	b.start(queue)
	b.awaitCount(0, `select count(*) from outbox.deferred`)
	b.awaitCount(1, `select count(*) from outbox.withdrawn where message_id = 7`)
	b.awaitCount(1, countDispatched+` where message_id = 8`)
}

// The replay guard: what has an outcome is not sent again.
func TestRelay_ReplayedMessages_AreSkipped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into outbox.relays (slot, reconciled_at) values ('s', now())`)
	b.exec(`insert into outbox.dispatched (message_id, attempts) values (1, 1), (3, 1)`)
	b.exec(`insert into outbox.dead_letters (message_id, attempts, reason) values (4, 1, 'refused')`)
	queue := &accept{}
	b.start(queue)
	b.source.batches <- rows(1, 6)
	b.source.awaitResolved(t, 6)
	if got, want := fmt.Sprint(queue.order), "[2 5 6]"; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
}

// A commit whose answer was lost is repeated, and what is marked stays as it is.
func TestRelay_MarkedTwice_IsNoError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proceed := make(chan struct{})
	b.start(publisherFunc(func(context.Context, *outbox.Row) (relay.Receipt, error) {
		<-proceed
		return relay.Receipt{}, nil
	}))
	b.source.batches <- rows(1, 2)
	b.awaitCount(1, `select count(*) from outbox.relays`)
	b.exec(`insert into outbox.dispatched (message_id, attempts, queue_message_id) values (1, 7, 'first')`)
	close(proceed)
	b.source.awaitResolved(t, 2)
	if got := b.count(countDispatched + ` where (message_id, attempts, queue_message_id) = (1, 7, 'first') or message_id = 2`); got != 2 {
		t.Errorf("%d rows as they should be, want 2", got)
	}
}

// A fault that only a person can mend ends the relay instead of looping.
func TestRelay_MissingRight_EndsWithTheReason(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Schema = "no such schema"
	b.start(&accept{})
	select {
	case <-b.ended:
	case <-time.After(patience):
		t.Fatal("the relay goes on without its tables")
	}
	if b.err == nil {
		t.Fatal("no error")
	}
}

const scheduledRow = `insert into outbox.deferred (message_id, queue, reason, not_before)
	select id, queue, 'scheduled', now() from outbox.messages where key = 's'`

// A scheduled message whose time comes while its lane is held takes its place at
// the end of the lane.
func TestRelay_ScheduledIntoAHeldLane(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.DeferAfter, b.cfg.DeferMin, b.cfg.DeferMax, b.cfg.ProbeMax = 0, time.Hour, time.Hour, time.Hour
	b.exec(`insert into outbox.relays (slot, reconciled_at) values ('s', now())`)
	b.exec(`insert into outbox.messages (key, queue, ordering_key, payload) values ('k1', 'q', 'o', '{}'), ('k2', 'q', 'o', '{}'), ('s', 'q', 'o', '{}')`)
	queue := &accept{}
	var failed atomic.Bool
	b.start(publisherFunc(func(ctx context.Context, row *outbox.Row) (relay.Receipt, error) {
		if row.ID == 1 && !failed.Swap(true) {
			return relay.Receipt{}, &relay.PublishError{Class: relay.Transient, Status: 500}
		}
		return queue.Publish(ctx, row)
	}))
	b.source.batches <- rows(1, 2)
	b.awaitCount(2, `select count(*) from outbox.deferred`)
	b.exec(scheduledRow)
	b.awaitCount(1, `select count(*) from outbox.deferred where message_id = 3 and reason = 'held'`)
	b.exec(`update outbox.deferred set not_before = now() where message_id = 1`)
	b.awaitCount(3, countDispatched)
	if got, want := fmt.Sprint(queue.order), "[1 2 3]"; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
}

// Promise 4: what the stream does not show is found in the table, and what is
// not committed yet is not passed over.
func TestPromise4_SweepFindsWhatTheStreamDidNotShow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.SweepInterval = 100 * time.Millisecond
	b.source.position = "FFFFFFFF/0" // everything that is written has been read
	queue := &accept{}
	b.start(queue)
	b.awaitCount(1, `select count(*) from outbox.relays where reconciled_at is not null`)
	slow, err := pgx.ConnectConfig(t.Context(), b.conn.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slow.Close(context.Background()) })
	late, err := slow.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const insert = `insert into outbox.messages (key, queue, ordering_key, payload) values ($1, 'q', 'o', '{}')`
	if _, err := late.Exec(t.Context(), insert, "late"); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		b.exec(insert, fmt.Sprintf("hidden-%d", i))
		b.awaitCount(i+1, countDispatched)
	}
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.awaitCount(6, countDispatched)
	b.awaitCount(0, `select count(*) from outbox.deferred`)
	s := b.awaitState("clean", func(s *relay.State) bool { return s.Sweep.Clean >= relay.CleanPasses && s.Sweep.Next != nil })
	if s.Sweep.Found < 1 || s.Totals.Recovered != 6 || s.Sweep.Next.Sub(*s.Sweep.Passed) < b.cfg.SweepInterval/2 {
		t.Errorf("the sweep is %+v, recovered are %d", s.Sweep, s.Totals.Recovered)
	}
}

// A timeout that an administrator gave to the role is for short statements. That one
// which takes long after a slot was made gets its time.
func TestPromise4_ReconcilesInSpiteOfATimeout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`create function slow() returns trigger language plpgsql as 'begin perform pg_catalog.pg_sleep(0.5); return new; end'`)
	b.exec(`create trigger slow before insert on outbox.deferred for each row execute function slow()`)
	b.exec(`insert into outbox.messages (key, queue, payload) select 'k' || i, 'q', '{}' from generate_series(1, 3) i`)
	config := b.conn.Config()
	config.RuntimeParams["statement_timeout"] = "1000" // milliseconds
	b.startAs(config)
	b.awaitCount(3, countDispatched)
}

// A pass over a large table has several pages, and several rounds if much is hidden.
func TestPromise4_SweepGoesThroughALargeTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.SweepInterval = time.Hour // one pass is enough
	b.source.position = "FFFFFFFF/0"
	b.exec(`insert into outbox.relays (slot, reconciled_at) values ('s', now())`)
	b.exec(`insert into outbox.messages (key, queue, payload) select 'k' || i, 'q', '{}' from generate_series(1, 50000) i`)
	b.exec(`insert into outbox.dispatched (message_id, attempts) select id, 1 from outbox.messages where id % 4 <> 0`)
	b.start(&accept{})
	b.awaitCount(50_000, countDispatched)
	b.awaitCount(0, `select count(*) from outbox.deferred`)
}

// The sweep must not take what is on its way for lost.
func TestPromise4_SweepLeavesAloneWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.SweepInterval = 100 * time.Millisecond
	b.source.position = "0/1" // nothing has been read
	queue := &accept{}
	b.start(queue)
	b.awaitCount(1, `select count(*) from outbox.relays where reconciled_at is not null`)
	b.exec(`insert into outbox.messages (key, queue, payload) select 'k' || i, 'q', '{}' from generate_series(1, 50) i`)
	b.source.batches <- rows(1, 50)
	b.source.awaitResolved(t, 50)
	if len(queue.order) != 50 {
		t.Errorf("%d requests, want 50", len(queue.order))
	}
}

// OPS-11: retention removes dispatched messages that are old, and nothing else.
func TestOPS11_RetentionRemovesDispatchedOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Retention = time.Hour
	b.source.position = "FFFFFFFF/0"
	b.exec(`insert into outbox.relays (slot, reconciled_at) values ('s', now())`)
	b.exec(`insert into outbox.messages (key, queue, payload, created_at) select 'k' || i, 'q', '{}', now() - interval '10 days' from generate_series(1, 5000) i`)
	b.exec(`insert into outbox.dispatched (message_id, attempts, dispatched_at) select id, 1, now() - interval '2 hours' from outbox.messages where id <= 4000`)
	b.exec(`insert into outbox.dispatched (message_id, attempts, dispatched_at) select id, 1, now() from outbox.messages where id between 4001 and 4500`)
	b.exec(`insert into outbox.dead_letters (message_id, attempts, reason, died_at) select id, 1, 'refused', now() - interval '9 days' from outbox.messages where id between 4501 and 4600`)
	b.exec(`insert into outbox.deferred (message_id, queue, reason, not_before) select id, 'q', 'scheduled', now() + interval '1 day' from outbox.messages where id > 4600`)
	b.exec(`insert into outbox.claims (consumer, event_id, expires_at) select 'c', i::text, now() + i * interval '1 hour' from generate_series(-1999, 100) i`)
	b.start(&accept{})
	b.awaitCount(100, `select count(*) from outbox.claims`)
	b.awaitCount(1000, `select count(*) from outbox.messages`)
	if got := b.count(countDispatched); got != 500 {
		t.Errorf("%d outcomes are left, want 500", got)
	}
	if got := b.count(`select count(*) from outbox.messages m where m.id <= 4000`); got != 0 {
		t.Errorf("%d old messages are left", got)
	}
}

// Large messages come back from the table a few at a time, so that memory stays
// within the window, and all of them arrive in order.
func TestRelay_LargeMessagesFromTheTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.WindowBytes = 1 << 20
	b.exec(`insert into outbox.relays (slot, reconciled_at) values ('s', now())`)
	b.exec(`insert into outbox.messages (key, queue, ordering_key, payload)
		select 'k' || i, 'q', 'o', jsonb_build_object('filler', repeat('x', 200000)) from generate_series(1, 40) i`)
	b.exec(`insert into outbox.deferred (message_id, queue, ordering_key, reason) select id, queue, ordering_key, 'held' from outbox.messages order by id`)
	queue := &accept{}
	b.start(queue)
	b.awaitCount(40, countDispatched)
	if !slices.IsSorted(queue.order) || len(queue.order) != 40 {
		t.Errorf("sent %v, want 1 to 40 in order", queue.order)
	}
}
