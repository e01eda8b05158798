package relay

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/outbox"
)

func testConfig() Config {
	return Config{
		MaxInFlight: 8, MaxInFlightPerQueue: 4, WindowMessages: 1000, WindowBytes: 1 << 20,
		OutcomeLinger: time.Millisecond, OutcomeBatch: 100,
		RetryMin: 100 * time.Millisecond, RetryMax: time.Second, ConflictAttempts: 3,
		BreakerFailures: 5, ProbeMin: time.Second, ProbeMax: 10 * time.Second,
		DeferAfter: time.Hour, OverflowAfter: time.Hour, DeferMin: time.Second, DeferMax: time.Minute,
		MaxAttempts: 1000, KeyWindow: time.Hour,
		TrustWindow: 10 * time.Second, DrainTimeout: time.Second,
	}
}

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// rig drives a router by hand, with its own clock.
type rig struct {
	*router
	now     time.Time
	next    uint64
	emitted []*outcome
}

func newRig(cfg Config) *rig {
	r := &rig{now: epoch}
	r.router = newRouter(cfg, zap.NewNop(), func(o *outcome) { r.emitted = append(r.emitted, o) })
	return r
}

// put takes in one message and returns it.
func (r *rig) put(queue, orderingKey string) *message {
	batch := []message{{row: &outbox.Row{ID: int64(r.next + 1), Queue: queue, OrderingKey: orderingKey}, number: r.next}}
	r.next++
	r.add(r.now, batch)
	return &batch[0]
}

// takeOne returns the next message, nil without one.
func (r *rig) takeOne() *message {
	m := r.take(r.now, &worker{wake: make(chan struct{}, 1)})
	r.idle = nil
	return m
}

// end brings a message back, leaves the next one where it is, and returns the
// first outcome that came of it.
func (r *rig) end(m *message, failure *PublishError) *outcome {
	stopped, before := r.stopped, len(r.emitted)
	r.stopped = true
	r.finish(r.now, &worker{wake: make(chan struct{}, 1)}, m, Receipt{}, failure)
	r.stopped, r.idle = stopped, nil
	if len(r.emitted) == before {
		return nil
	}
	return r.emitted[before]
}

// pass lets time go by.
func (r *rig) pass(d time.Duration) {
	r.now = r.now.Add(d)
	r.tick(r.now)
}

func failed(class Class) *PublishError { return &PublishError{Class: class, Status: 599} }

func TestRouter_OneMessageOfALaneIsInFlight(t *testing.T) {
	r := newRig(testConfig())
	first, second := r.put("q", "a"), r.put("q", "a")
	if got := r.takeOne(); got != first {
		t.Fatalf("took %v, want the first", got)
	}
	if got := r.takeOne(); got != nil {
		t.Fatalf("took %d while the first is in flight", got.number)
	}
	if done := r.end(first, nil); done == nil || done.state != dispatched {
		t.Fatalf("outcome %+v, want dispatched", done)
	}
	if got := r.takeOne(); got != second {
		t.Fatalf("took %v, want the second", got)
	}
}

// ORD-06: messages without ordering key do not wait for each other.
func TestRouter_UnorderedMessagesRunFreely(t *testing.T) {
	r := newRig(testConfig())
	for range 3 {
		r.put("q", "")
	}
	for i := range 3 {
		if got := r.takeOne(); got == nil || got.number != uint64(i) {
			t.Fatalf("take %d: %+v", i, got)
		}
	}
}

func TestRouter_QueuesTakeTurns(t *testing.T) {
	r := newRig(testConfig())
	for range 3 {
		r.put("long", "")
	}
	r.put("short", "")
	var order []string
	for m := r.takeOne(); m != nil; m = r.takeOne() {
		order = append(order, m.row.Queue)
	}
	if got, want := fmt.Sprint(order), "[long short long long]"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}

func TestRouter_LimitPerQueue(t *testing.T) {
	r := newRig(testConfig())
	for range 6 {
		r.put("q", "")
	}
	var taken []*message
	for m := r.takeOne(); m != nil; m = r.takeOne() {
		taken = append(taken, m)
	}
	if len(taken) != 4 {
		t.Fatalf("%d in flight, want 4", len(taken))
	}
	r.end(taken[0], nil)
	if r.takeOne() == nil {
		t.Error("nothing taken after one came back")
	}
}

// ORD-02: a message that waits for its next attempt keeps its lane, and only
// its lane.
func TestRouter_RetryKeepsTheLane(t *testing.T) {
	r := newRig(testConfig())
	first := r.put("q", "a")
	r.put("q", "a")
	other := r.put("q", "b")
	r.takeOne()
	if done := r.end(first, failed(Transient)); done != nil {
		t.Fatalf("outcome %+v after a transient failure", done)
	}
	if got := r.takeOne(); got != other {
		t.Fatalf("took %+v, want the other lane's", got)
	}
	r.end(other, nil)
	if got := r.takeOne(); got != nil {
		t.Fatalf("message %d went out before the first of its lane", got.number)
	}
	r.pass(100 * time.Millisecond)
	if got := r.takeOne(); got != first {
		t.Fatalf("took %+v, want the first again", got)
	}
}

func TestRouter_RefusedBecomesADeadLetterAndTheLaneGoesOn(t *testing.T) {
	r := newRig(testConfig())
	first, second := r.put("q", "a"), r.put("q", "a")
	r.takeOne()
	done := r.end(first, failed(Refused))
	if done == nil || done.state != dead {
		t.Fatalf("outcome %+v, want dead", done)
	}
	if got := r.takeOne(); got != second {
		t.Fatalf("took %+v, want the second", got)
	}
}

func TestRouter_ConflictIsTriedABoundedNumberOfTimes(t *testing.T) {
	r := newRig(testConfig())
	m := r.put("q", "a")
	for attempt := 1; ; attempt++ {
		r.pass(time.Minute)
		if r.takeOne() != m {
			t.Fatal("message did not come back")
		}
		done := r.end(m, failed(Conflict))
		if done == nil {
			continue
		}
		if done.state != dead || attempt != 3 {
			t.Errorf("state %d after %d attempts, want dead after 3", done.state, attempt)
		}
		return
	}
}

// HTTP-08, HTTP-13: while the queue is down one probe at a time goes out, not
// one request per message.
func TestRouter_OutageLeavesOneProbe(t *testing.T) {
	r := newRig(testConfig())
	for range 50 {
		r.put("q", "")
	}
	requests := 0
	for range 600 { // ten minutes
		for m := r.takeOne(); m != nil; m = r.takeOne() {
			requests++
			r.end(m, failed(Transient))
		}
		r.pass(time.Second)
	}
	if most := 5 + 600/5 + 10; requests > most {
		t.Errorf("%d requests in ten minutes of outage, want at most %d", requests, most)
	}
	r.pass(10 * time.Second)
	probe := r.takeOne()
	if probe == nil || r.takeOne() != nil {
		t.Fatal("want one probe")
	}
	r.end(probe, nil)
	got := 0
	for m := r.takeOne(); m != nil; m = r.takeOne() {
		got++
		r.end(m, nil)
	}
	if got != 49 {
		t.Errorf("%d messages went out at once after the probe, want 49", got)
	}
}

// HTTP-10: 401 for everything pauses the endpoint and sets nothing aside.
func TestRouter_EndpointClosedPausesEverything(t *testing.T) {
	r := newRig(testConfig())
	m := r.put("q", "")
	other := r.put("other", "")
	r.takeOne()
	if done := r.end(m, failed(EndpointClosed)); done != nil {
		t.Fatalf("outcome %+v", done)
	}
	if got := r.takeOne(); got != nil {
		t.Fatal("a request went out while the endpoint is closed")
	}
	r.pass(10 * time.Second)
	if got := r.takeOne(); got != other {
		t.Fatalf("probe %+v, want the message that is ready", got)
	}
	if got := r.takeOne(); got != nil {
		t.Fatal("a second probe")
	}
	r.end(other, nil)
	if got := r.takeOne(); got != m {
		t.Fatalf("took %+v, want the first after the endpoint is back", got)
	}
}

// HTTP-10: 404 pauses its queue only.
func TestRouter_QueueClosedPausesTheQueue(t *testing.T) {
	r := newRig(testConfig())
	m := r.put("gone", "")
	r.put("gone", "")
	other := r.put("other", "")
	if r.takeOne() != m {
		t.Fatal("want the first")
	}
	r.end(m, failed(QueueClosed))
	if got := r.takeOne(); got != other {
		t.Fatalf("took %+v, want the other queue's", got)
	}
	r.end(other, nil)
	if got := r.takeOne(); got != nil {
		t.Fatalf("message %d went to a closed queue", got.number)
	}
	r.pass(2 * time.Second)
	if got := r.takeOne(); got == nil || got.queue.name != "gone" {
		t.Fatalf("probe %+v, want one of the closed queue", got)
	}
	if r.takeOne() != nil {
		t.Fatal("a second probe")
	}
}

// HTTP-01: nothing goes out before the time that the queue asked for.
func TestRouter_RetryAfterIsKept(t *testing.T) {
	r := newRig(testConfig())
	first := r.put("q", "")
	r.put("q", "")
	r.takeOne()
	r.end(first, &PublishError{Class: RateLimited, RetryAfter: 4 * time.Second})
	for range 39 {
		r.pass(100 * time.Millisecond)
		if r.takeOne() != nil {
			t.Fatalf("a request after %s", r.now.Sub(epoch))
		}
	}
	r.pass(600 * time.Millisecond)
	if r.takeOne() == nil {
		t.Error("no request after the pause")
	}
}

// A message that fails alone must not become the only probe: the next probe is
// another one.
func TestRouter_PoisonIsNotTheOnlyProbe(t *testing.T) {
	r := newRig(testConfig())
	poison := r.put("q", "p")
	for r.endpoint.closed == false {
		r.pass(2 * time.Second)
		if m := r.takeOne(); m != nil {
			r.end(m, failed(Transient))
		}
	}
	good := r.put("q", "g")
	for range 10 {
		r.pass(10 * time.Second)
		switch m := r.takeOne(); m {
		case good:
			return
		case poison:
			r.end(m, failed(Transient))
		}
	}
	t.Error("the good message never went out")
}

func TestRouter_StopGivesOutNothing(t *testing.T) {
	r := newRig(testConfig())
	m := r.put("q", "")
	r.put("q", "")
	r.takeOne()
	if got := r.stop(); got != 1 {
		t.Errorf("%d in flight, want 1", got)
	}
	if r.takeOne() != nil {
		t.Error("gave out a message after stop")
	}
	if done := r.end(m, nil); done == nil {
		t.Error("no outcome for the request in flight")
	}
}

func TestRouter_WindowCountsMessagesAndBytes(t *testing.T) {
	cfg := testConfig()
	cfg.WindowMessages = 2
	r := newRig(cfg)
	r.put("q", "")
	if r.full() {
		t.Fatal("full with one of two")
	}
	m := r.put("q", "")
	if !r.full() {
		t.Fatal("not full with two of two")
	}
	r.resolved([]*outcome{{message: m, state: dispatched}})
	if r.full() {
		t.Error("still full")
	}
	cfg.WindowMessages, cfg.WindowBytes = 1000, 10
	r = newRig(cfg)
	r.put("0123456789", "")
	if !r.full() {
		t.Error("ten bytes of ten are not full")
	}
}

// A held lane that has nothing in memory costs a few hundred bytes, however many
// of its messages wait in the table.
func TestRouter_MemoryOfHeldLanes(t *testing.T) {
	const lanes = 100_000
	cfg := testConfig()
	cfg.WindowMessages, cfg.WindowBytes, cfg.DeferAfter = 10, 1<<20, 0
	r := newRig(cfg)
	before := heapInUse()
	for i := range lanes {
		r.put("q", fmt.Sprintf("customer-%08d", i))
		r.endDurably(r.takeOne(), failed(Conflict))
		for range 2 { // these wait behind it
			r.put("q", fmt.Sprintf("customer-%08d", i))
			r.durable()
		}
	}
	each := (heapInUse() - before) / lanes
	t.Logf("%d bytes for each held lane", each)
	if len(r.lanes) != lanes || r.messages != 0 || each > 400 {
		t.Errorf("%d lanes, %d messages in memory, %d bytes for each lane, want %d, 0 and at most 400", len(r.lanes), r.messages, each, lanes)
	}
}

// heapInUse is the memory in use.
func heapInUse() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// durable makes everything durable that was emitted.
func (r *rig) durable() {
	r.resolved(r.emitted)
	r.emitted = nil
}

// endDurably brings a message back, and makes what comes of it durable.
func (r *rig) endDurably(m *message, failure *PublishError) {
	r.end(m, failure)
	r.durable()
}

// A failure is the message's own if others got through since its last one, also
// when none did while its request was under way.
func TestRouter_BlameSinceTheLastFailure(t *testing.T) {
	r := newRig(testConfig())
	poison, other := r.put("q", "a"), r.put("q", "b")
	if r.takeOne() != poison || r.takeOne() != other {
		t.Fatal("want both in flight")
	}
	r.end(poison, failed(Transient)) // nobody got through yet
	r.pass(100 * time.Millisecond)
	r.end(other, nil)
	r.pass(time.Second)
	if r.takeOne() != poison {
		t.Fatal("want another attempt")
	}
	r.end(poison, failed(Transient))
	r.pass(2 * time.Second)
	if r.takeOne() != poison {
		t.Fatal("want another attempt")
	}
	r.end(poison, failed(Transient)) // nobody since
	if poison.attempts != 3 || poison.charged != 1 {
		t.Errorf("%d attempts, %d charged, want 3 and 1", poison.attempts, poison.charged)
	}
}

// A wait that goes beyond DeferAfter is spent in the table: the slot waits for
// what is in memory.
func TestRouter_LongWaitsAreSpentInTheTable(t *testing.T) {
	cfg := testConfig()
	cfg.DeferAfter = 2 * time.Second
	r := newRig(cfg)
	m := r.put("q", "a")
	m.attempts = 20 // of earlier sessions
	r.takeOne()
	failure := failed(Transient)
	failure.RetryAfter = 1900 * time.Millisecond
	if o := r.end(m, failure); o != nil {
		t.Fatalf("outcome %v, want a wait in memory", o.state)
	}
	r.pass(1950 * time.Millisecond)
	r.takeOne()
	if o := r.end(m, failed(Transient)); o == nil || o.state != deferred {
		t.Errorf("outcome %v, want it deferred", o)
	}
}

// A pause that the queue asked for is kept there, too.
func TestRouter_RetryAfterIsKeptInTheTable(t *testing.T) {
	for _, key := range []string{"a", ""} {
		cfg := testConfig()
		cfg.DeferAfter = 2 * time.Second
		r := newRig(cfg)
		m := r.put("q", key)
		r.takeOne()
		failure := failed(Transient)
		failure.RetryAfter = time.Minute
		o := r.end(m, failure)
		if o == nil || o.state != deferred {
			t.Fatalf("outcome %v, want it deferred", o)
		}
		if wait := o.notBefore.Sub(r.now); wait < time.Minute {
			t.Errorf("ordering key %q: it waits %s, want a minute", key, wait)
		}
	}
}

// A lane that is slower than its messages come overflows alone; the other lanes
// of its queue stay in memory.
func TestRouter_SlowLaneOverflowsAlone(t *testing.T) {
	cfg := testConfig()
	cfg.OverflowAfter = 5 * time.Second
	r := newRig(cfg)
	for range 10 {
		r.put("q", "slow")
	}
	slow := r.takeOne()
	for range 8 {
		r.pass(time.Second)
		fast := r.put("q", "fast")
		if r.takeOne() != fast {
			t.Fatal("want the other lane to go on")
		}
		if o := r.end(fast, nil); o.state != dispatched {
			t.Fatalf("outcome of the other lane is %v", o.state)
		}
	}
	r.emitted = nil
	r.end(slow, nil)
	if len(r.emitted) != 10 || r.emitted[1].state != deferred || r.emitted[9].row().ID != 10 {
		t.Fatalf("%d outcomes, want one dispatched and nine deferred in order", len(r.emitted))
	}
	if r.queueOf("q").hold != nil || r.lanes[laneKey{"q", "slow"}].hold == nil {
		t.Error("want the lane held, and not the queue")
	}
}

// Somebody redrives a dead letter of a lane whose next message is under way for so
// long that what waits behind the row goes into the table: not before the one that
// is under way, which may have to go there, too.
func TestPromise6_NothingOvertakesWhatIsUnderWay(t *testing.T) {
	cfg := testConfig()
	cfg.DeferAfter, cfg.OverflowAfter = 2*time.Second, 5*time.Second
	r := newRig(cfg)
	first, waiting := r.put("q", "a"), r.put("q", "a")
	r.takeOne()
	job, _ := r.nextJob(r.now, true)
	r.loaded(r.now, job, []deferredRow{{
		position: -1, queue: "q", orderingKey: "a", reason: "redriven", notBefore: r.now,
		row: outbox.Row{ID: 1000, Queue: "q", OrderingKey: "a"},
	}}, false)
	last := r.put("q", "a")
	r.pass(cfg.OverflowAfter)
	if len(r.emitted) > 0 {
		t.Fatalf("message %d goes into the table while the first one is under way", r.emitted[0].message.number)
	}
	r.end(first, failed(UnknownOutcome))
	for len(r.emitted) == 0 {
		r.pass(time.Second)
		r.end(r.takeOne(), failed(UnknownOutcome))
	}
	var order []uint64
	for _, o := range r.emitted {
		order = append(order, o.message.number)
	}
	if got, want := fmt.Sprint(order), fmt.Sprint([]uint64{first.number, waiting.number, last.number}); got != want {
		t.Errorf("messages go into the table in the order %s, want %s", got, want)
	}
}

// A queue is held while a scheduled row is on its way to the end of its lane, and
// live again before the row is there: the queue waits for it, nobody else would.
func TestRouter_RowOnItsWayWhileItsQueueIsHeld(t *testing.T) {
	r := newRig(testConfig())
	row := func(id int64, orderingKey, reason string) deferredRow {
		return deferredRow{
			position: id, queue: "q", reason: reason, notBefore: r.now, orderingKey: orderingKey,
			row: outbox.Row{ID: id, Queue: "q", OrderingKey: orderingKey},
		}
	}
	r.put("q", "a")
	under := r.takeOne()
	job, _ := r.nextJob(r.now, true)
	r.loaded(r.now, job, []deferredRow{row(1000, "a", "recovered"), row(1001, "a", reasonScheduled), row(1002, "", "recovered")}, false)
	if len(r.emitted) != 1 || r.emitted[0].state != requeued {
		t.Fatalf("%d outcomes, want the scheduled row requeued", len(r.emitted))
	}
	r.apply(r.now, map[string]Settings{"q": {Paused: true}})
	r.end(under, nil)
	r.apply(r.now, nil)
	empty := func() (final bool) {
		job, ok := r.nextJob(r.now, false)
		if !ok || job.hold == nil {
			return false
		}
		r.loaded(r.now, job, nil, false)
		return job.final
	}
	for range 3 {
		if empty() {
			t.Fatal("the queue is live, and a row is on its way into the table")
		}
	}
	r.resolved(r.emitted)
	for range 3 {
		empty()
	}
	if r.queueOf("q").hold != nil {
		t.Error("the queue is still held")
	}
}

// A queue drains for as long as more comes than goes. What waits in the table for its
// time goes out all the same: a message that failed, a lane behind one that did, a
// message that was redriven, and one that was scheduled.
func TestRouter_WhatIsDueGoesOutWhileItsQueueDrains(t *testing.T) {
	r := newRig(testConfig())
	r.chunks = chunks{queue: 2, lane: 2, probe: 2, due: 10}
	row := func(position, id int64, orderingKey, reason string, notBefore time.Time) deferredRow {
		return deferredRow{
			position: position, queue: "q", reason: reason, notBefore: notBefore, orderingKey: orderingKey,
			row: outbox.Row{ID: id, Queue: "q", OrderingKey: orderingKey},
		}
	}
	r.holdQueues([]string{"q"})
	later := r.now.Add(time.Second)
	job, _ := r.nextJob(r.now, false)
	r.loaded(r.now, job, []deferredRow{
		row(1, 1, "", "transient", later), row(2, 2, "a", "transient", later), row(3, 3, "a", reasonHeld, time.Time{}), row(4, 4, "", reasonHeld, time.Time{}),
	}, true)
	q := r.queueOf("q")
	if len(r.cache) != 1 || q.hold.state != draining {
		t.Fatalf("%d messages are in memory, and the queue's hold is %q", len(r.cache), q.hold)
	}

	r.pass(time.Second)
	job, _ = r.nextJob(r.now, true)
	if job.hold != nil || len(job.heldQueues) > 0 {
		t.Fatalf("rows whose time has come are not looked for: %+v", job)
	}
	r.loaded(r.now, job, []deferredRow{
		row(1, 1, "", "transient", later), row(2, 2, "a", "transient", later), row(-7, 7, "b", "redriven", r.now), row(5, 5, "c", reasonScheduled, r.now),
	}, false)
	if len(r.emitted) != 1 || r.emitted[0].state != requeued || q.hold.pending != 1 {
		t.Errorf("of the scheduled message became %+v", r.emitted)
	}
	for lanes := 0; lanes < 2; {
		job, _ = r.nextJob(r.now, false)
		if job.hold == nil {
			t.Fatal("nothing is to be loaded, and two lanes wait")
		}
		switch {
		case job.hold.lane == nil:
			r.loaded(r.now, job, []deferredRow{row(100+job.after, 100+job.after, "", reasonHeld, time.Time{})}, true)
			continue
		case job.hold.lane.key.orderingKey == "a":
			r.loaded(r.now, job, []deferredRow{row(2, 2, "a", "transient", later), row(3, 3, "a", reasonHeld, time.Time{})}, false)
		default:
			r.loaded(r.now, job, []deferredRow{row(-7, 7, "b", "redriven", r.now)}, false)
		}
		if job.hold.lane.hold != nil {
			t.Errorf("lane %s is held although all of it is in memory", job.hold.lane.key.orderingKey)
		}
		lanes++
	}
	gone := map[int64]bool{}
	for m := r.takeOne(); m != nil; m = r.takeOne() {
		gone[m.row.ID] = true
		r.end(m, nil)
	}
	for _, id := range []int64{1, 2, 3, 4, 7} {
		if !gone[id] {
			t.Errorf("message %d did not go out", id)
		}
	}
	if q.hold == nil || q.hold.state != draining {
		t.Error("the queue drains no more")
	}
}

// A lane drains beside its queue, and is through while a message of it is still on its
// way into the table: that one was sent there by the queue, before the lane was found.
// What comes next goes there, too, behind it.
func TestPromise6_LaneIsThroughBeforeItsQueue(t *testing.T) {
	r := newRig(testConfig())
	r.chunks = chunks{queue: 2, lane: 2, probe: 2, due: 10}
	r.holdQueues([]string{"q"})
	first := r.put("q", "a")
	inherited := deferredRow{
		position: 1, queue: "q", reason: "transient", notBefore: r.now.Add(time.Second), orderingKey: "a",
		row: outbox.Row{ID: 1000, Queue: "q", OrderingKey: "a"},
	}
	job, _ := r.nextJob(r.now, false)
	r.loaded(r.now, job, []deferredRow{inherited}, true)
	r.pass(time.Second)
	job, _ = r.nextJob(r.now, true)
	r.loaded(r.now, job, []deferredRow{inherited}, false)
	for range 4 {
		job, ok := r.nextJob(r.now, false)
		switch {
		case !ok || job.hold == nil:
		case job.hold.lane == nil:
			r.loaded(r.now, job, []deferredRow{{position: job.after + 1, queue: "q", reason: reasonHeld, row: outbox.Row{ID: 2000 + job.after, Queue: "q"}}}, true)
		case job.after < inherited.position:
			r.loaded(r.now, job, []deferredRow{inherited}, false)
		default:
			r.loaded(r.now, job, nil, false)
		}
	}
	r.put("q", "a")
	for m := r.takeOne(); m != nil; m = r.takeOne() {
		r.end(m, nil)
		if !m.cached {
			t.Fatalf("message %d went out, and message %d is on its way into the table", m.number, first.number)
		}
	}
	if n := len(r.emitted); n < 2 || r.emitted[0].message != first || r.emitted[1].state != deferred {
		t.Errorf("%d outcomes, want the deferral of both messages first", n)
	}
}

// While a queue is tried for its return, nothing beside what the probes need comes
// into memory.
func TestRouter_NothingIsDueForAProbe(t *testing.T) {
	r := newRig(testConfig())
	r.holdQueues([]string{"q"})
	q := r.queueOf("q")
	q.gate.close(r.now, Transient, 0)
	r.nextJob(r.now, false)
	if job, _ := r.nextJob(r.now, true); q.hold.state != draining || len(job.heldQueues) != 1 {
		t.Errorf("the hold is %q, and rows are looked for that are due: %+v", q.hold, job)
	}
}

// A scheduled message becomes a dead letter that holds its lane, and dead letters
// hold nothing any more before its row is one of the lane: the lane waits for it,
// nobody else would.
func TestRouter_RowOfAScheduledDeadLetter(t *testing.T) {
	r := newRig(testConfig())
	r.apply(r.now, map[string]Settings{"q": {HoldOnDeadLetter: true}})
	job, _ := r.nextJob(r.now, true)
	r.loaded(r.now, job, []deferredRow{{
		position: 1, queue: "q", reason: reasonScheduled, notBefore: r.now,
		row: outbox.Row{ID: 1, Queue: "q", OrderingKey: "a"},
	}}, false)
	if o := r.end(r.takeOne(), failed(Refused)); o == nil || !o.blocks {
		t.Fatalf("outcome %+v, want a dead letter that holds its lane", o)
	}
	r.apply(r.now, nil)
	for range 3 {
		if job, ok := r.nextJob(r.now, false); ok && job.hold != nil {
			r.loaded(r.now, job, nil, false)
		}
	}
	if l := r.lanes[laneKey{"q", "a"}]; l == nil || l.hold == nil {
		t.Error("the lane is live, and a row of it is on its way into the table")
	}
}

// A queue that fails while another is well is paused alone, from the first time
// on.
func TestRouter_AFailingQueueIsPausedAlone(t *testing.T) {
	r := newRig(testConfig())
	r.put("well", "")
	r.end(r.takeOne(), nil)
	r.pass(100 * time.Millisecond)
	for range r.cfg.BreakerFailures {
		r.put("down", "")
		r.end(r.takeOne(), failed(Transient))
	}
	if r.endpoint.closed || !r.queueOf("down").gate.closed {
		t.Errorf("endpoint closed %t, queue closed %t, want the queue alone", r.endpoint.closed, r.queueOf("down").gate.closed)
	}
}

// While everything is paused the probes go round the queues, so that one that is
// well is found.
func TestRouter_ProbesGoRoundTheQueues(t *testing.T) {
	cfg := testConfig()
	cfg.ProbeMin, cfg.ProbeMax = time.Second, time.Second
	r := newRig(cfg)
	for range r.cfg.BreakerFailures {
		r.put("down", "")
		r.end(r.takeOne(), failed(Transient))
	}
	if !r.endpoint.closed {
		t.Fatal("want the endpoint closed")
	}
	for range 5 {
		r.put("down", "")
		r.put("well", "")
	}
	probed := map[string]int{}
	for range 4 {
		r.pass(1100 * time.Millisecond)
		m := r.takeOne()
		probed[m.row.Queue]++
		r.end(m, failed(Transient))
	}
	if probed["well"] == 0 || probed["down"] == 0 {
		t.Errorf("probes went to %v, want both", probed)
	}
}

// A probe is a message that has not failed yet, if there is one: one that the
// queue never takes must not hide that it is well.
func TestRouter_ProbesAreFresh(t *testing.T) {
	r := newRig(testConfig())
	bad := r.put("q", "bad")
	for range r.cfg.BreakerFailures {
		m := r.takeOne()
		for ; m == nil; m = r.takeOne() {
			r.pass(time.Second)
		}
		r.end(m, failed(Transient))
	}
	r.pass(time.Minute) // the bad one is ready again, and first
	fresh := r.put("q", "fresh")
	if got := r.takeOne(); got != fresh {
		t.Errorf("the probe is message %d with %d attempts, want the fresh one, not %d", got.row.ID, got.attempts, bad.row.ID)
	}
}

// What has just come back is asked by a few requests at first, and by more with
// each that gets through.
func TestRouter_RampAfterAnOutage(t *testing.T) {
	cfg := testConfig()
	cfg.MaxInFlight, cfg.MaxInFlightPerQueue = 100, 100
	r := newRig(cfg)
	for range r.cfg.BreakerFailures {
		r.put("q", "")
		r.end(r.takeOne(), failed(Transient))
	}
	for range 200 {
		r.put("q", "")
	}
	r.pass(time.Minute)
	flight := []*message{r.takeOne()}
	var sizes []int
	for range 8 {
		for _, m := range flight {
			r.end(m, nil)
		}
		flight = nil
		for m := r.takeOne(); m != nil; m = r.takeOne() {
			flight = append(flight, m)
		}
		sizes = append(sizes, len(flight))
	}
	if want := "[2 4 8 16 32 64 78 0]"; fmt.Sprint(sizes) != want {
		t.Errorf("requests at once: %v, want %s", sizes, want)
	}
}

// What is read ahead of a draining queue is what it takes in a moment: a slow
// one has few messages in memory, which cannot be withdrawn any more.
func TestRouter_ReadsAheadBySpeed(t *testing.T) {
	for _, c := range []struct {
		name  string
		pause time.Duration // of a request
		want  int
	}{{"slow", 50 * time.Millisecond, 100}, {"fast", 100 * time.Microsecond, 6000}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(testConfig())
			r.cfg.WindowMessages = 100_000
			r.queueOf("q").hold = newHold(r.queueOf("q"), nil)
			id, most := int64(0), 0
			for range 30_000 {
				for j, ok := r.nextJob(r.now, false); ok; j, ok = r.nextJob(r.now, false) {
					rows := make([]deferredRow, j.limit)
					for i := range rows {
						id++
						rows[i] = deferredRow{position: id, queue: "q", row: outbox.Row{ID: id, Queue: "q"}}
					}
					r.loaded(r.now, j, rows, true)
				}
				most = max(most, len(r.cache))
				r.endDurably(r.takeOne(), nil)
				r.pass(c.pause)
			}
			if most > c.want || most < c.want*9/10 {
				t.Errorf("%d messages in memory at most, want about %d", most, c.want)
			}
		})
	}
}
