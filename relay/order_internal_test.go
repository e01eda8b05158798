package relay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// world is a router between a stream, a queue and a table that the test plays:
// outcomes become durable late and in batches, chunks of the table are as old as
// the moment when they were asked for, and requests end in any order.
type world struct {
	t *rapid.T
	*router
	now      time.Time
	next     uint64
	flying   []*message
	written  []*outcome // handed to the writer, not durable
	table    []tableRow
	position int64
	job      *job
	snapshot []tableRow

	ended    map[int64]int  // messages with an outcome that is the last one
	dead     []outbox.Row   // dead letters
	redriven map[int64]bool // those that came back: order is not theirs
	late     map[int64]bool // those with deliver_at, and those that were recovered, likewise
	sent     map[int64]int  // requests of each message
	trace    []string
	accepted map[laneKey][]int64
	inLane   map[laneKey]int
}

// tableRow is a row of deferred.
type tableRow struct{ deferredRow }

func newWorld(t *rapid.T, cfg Config) *world {
	w := &world{t: t, now: epoch, ended: map[int64]int{}, redriven: map[int64]bool{}, late: map[int64]bool{}, sent: map[int64]int{}, accepted: map[laneKey][]int64{}, inLane: map[laneKey]int{}}
	w.router = newRouter(cfg, zap.NewNop(), func(o *outcome) {
		w.note("emit %d of %s/%s: state %d %s", o.row().ID, o.row().Queue, o.row().OrderingKey, o.state, o.reason)
		w.written = append(w.written, o)
	})
	w.chunks = chunks{queue: 4, lane: 2, probe: 2, due: 2} // small, so that there are many
	return w
}

func (w *world) commit(queue, orderingKey string) {
	w.next++
	w.note("commit %d to %s/%s", w.next, queue, orderingKey)
	w.add(w.now, []message{{number: w.next, row: &outbox.Row{ID: int64(w.next), Queue: queue, OrderingKey: orderingKey}}})
}

// schedule commits a message for later.
func (w *world) schedule(queue, orderingKey string, d time.Duration) {
	w.next++
	w.late[int64(w.next)] = true
	w.note("schedule %d to %s/%s", w.next, queue, orderingKey)
	w.add(w.now, []message{{number: w.next, row: &outbox.Row{
		ID: int64(w.next), Queue: queue, OrderingKey: orderingKey, DeliverAt: w.now.Add(d),
	}}})
}

// recover puts a message into the table that the stream did not show, as the sweep
// does.
func (w *world) recover(queue, orderingKey string) {
	w.next++
	w.position++
	w.late[int64(w.next)] = true
	w.note("recover %d of %s/%s", w.next, queue, orderingKey)
	w.table = append(w.table, tableRow{deferredRow{
		position: w.position, queue: queue, orderingKey: orderingKey, reason: "recovered", notBefore: w.now,
		row: outbox.Row{ID: int64(w.next), Queue: queue, OrderingKey: orderingKey},
	}})
}

// bringBack puts a dead letter of an earlier session before everything of its queue, as
// a redrive does.
func (w *world) bringBack(queue, orderingKey string) {
	w.next++
	w.late[int64(w.next)] = true
	w.note("bring back %d of %s/%s", w.next, queue, orderingKey)
	w.table = append(w.table, tableRow{deferredRow{
		position: int64(w.next) - 1_000_000, queue: queue, orderingKey: orderingKey, reason: "redriven", notBefore: w.now,
		row: outbox.Row{ID: int64(w.next), Queue: queue, OrderingKey: orderingKey},
	}})
}

// inherit is a row of the table that an earlier session has left. The first one of an
// ordering key may have failed, and waits for its time.
func (w *world) inherit(queue, orderingKey string, failed bool) {
	w.next++
	w.position++
	row := tableRow{deferredRow{
		position: w.position, queue: queue, orderingKey: orderingKey, reason: reasonHeld,
		row: outbox.Row{ID: int64(w.next), Queue: queue, OrderingKey: orderingKey},
	}}
	first := orderingKey == "" || !slices.ContainsFunc(w.table, func(r tableRow) bool { return r.orderingKey == orderingKey })
	if failed && first {
		row.reason, row.notBefore = "transient", w.now.Add(2*time.Second)
	}
	w.table = append(w.table, row)
}

func (w *world) send() bool {
	m := w.take(w.now, &worker{wake: make(chan struct{}, 1)})
	w.idle = nil
	if m == nil {
		return false
	}
	key := w.laneKeyOf(m.row)
	w.inLane[key]++
	if key.orderingKey != "" && w.inLane[key] > 1 {
		w.t.Fatalf("two messages of lane %v are in flight", key)
	}
	if w.ended[m.row.ID] > 0 && !w.redriven[m.row.ID] {
		w.t.Fatalf("message %d is sent again after its outcome", m.row.ID)
	}
	w.note("send %d of %s/%s, cached %t", m.row.ID, m.row.Queue, m.row.OrderingKey, m.cached)
	w.flying = append(w.flying, m)
	w.sent[m.row.ID]++
	return true
}

func (w *world) comeBack(i int, failure *PublishError) {
	m := w.flying[i]
	w.flying = slices.Delete(w.flying, i, i+1)
	w.note("back %d of %s/%s: %v", m.row.ID, m.row.Queue, m.row.OrderingKey, failure)
	key := w.laneKeyOf(m.row)
	w.inLane[key]--
	if failure == nil && key.orderingKey != "" && !w.redriven[m.row.ID] && !w.late[m.row.ID] {
		if before := w.accepted[key]; len(before) > 0 && before[len(before)-1] > m.row.ID {
			w.dump()
			w.t.Fatalf("lane %v: %d was accepted after %d", key, m.row.ID, before[len(before)-1])
		}
		w.accepted[key] = append(w.accepted[key], m.row.ID)
	}
	stopped := w.stopped
	w.stopped = true
	w.finish(w.now, &worker{wake: make(chan struct{}, 1)}, m, Receipt{}, failure)
	w.stopped, w.idle = stopped, nil
}

// laneKeyOf names the lane of a message as the test sees it: queue z is one lane
// from first to last, the others are not.
func (w *world) laneKeyOf(row *outbox.Row) laneKey {
	if row.Queue == "z" {
		return laneKey{"z", wholeQueue}
	}
	return laneKey{row.Queue, row.OrderingKey}
}

// write makes the first n outcomes durable.
func (w *world) write(n int) {
	batch := w.written[:n]
	w.written = w.written[n:]
	for _, o := range batch {
		w.apply(o)
	}
	w.resolved(batch)
}

func (w *world) apply(o *outcome) {
	id := o.row().ID
	w.note("durable %d of %s/%s: state %d %s, cached %t", id, o.row().Queue, o.row().OrderingKey, o.state, o.reason, o.message.cached)
	at := slices.IndexFunc(w.table, func(r tableRow) bool { return r.row.ID == id })
	switch o.state {
	case deferred:
		w.position++
		w.insert(o, o.reason)
	case postponed:
		if at < 0 {
			w.t.Fatalf("message %d is postponed and not in the table", id)
		}
		w.postpone(at, o, o.reason)
	case requeued:
		if at < 0 {
			w.t.Fatalf("message %d is requeued and not in the table", id)
		}
		w.position++
		row := w.table[at]
		row.position, row.orderingKey, row.notBefore, row.reason = w.position, o.row().OrderingKey, time.Time{}, reasonHeld
		w.table = append(slices.Delete(w.table, at, at+1), row)
	case released:
		if at >= 0 && w.table[at].reason == reasonDeadLetter {
			w.table = slices.Delete(w.table, at, at+1)
		}
	default:
		w.ended[id]++
		if o.message.attempts != w.sent[id] && !w.redriven[id] {
			w.dump()
			w.t.Fatalf("message %d: %d attempts are on record, %d requests were sent", id, o.message.attempts, w.sent[id])
		}
		if o.state == dead && !w.redriven[id] {
			w.dead = append(w.dead, *o.row())
		}
		switch {
		case o.blocks && at >= 0:
			w.postpone(at, o, reasonDeadLetter)
			return
		case o.blocks:
			w.insert(o, reasonDeadLetter)
			return
		}
		if at >= 0 {
			w.table = slices.Delete(w.table, at, at+1)
		} else if o.message.cached {
			w.t.Fatalf("message %d came from the table and is not in it", id)
		}
	}
}

// insert gives a message a row.
func (w *world) insert(o *outcome, reason string) {
	w.position++
	row := tableRow{deferredRow{
		position: w.position, queue: o.row().Queue, orderingKey: o.row().OrderingKey, reason: reason,
		attempts: o.message.attempts, notBefore: o.notBefore, row: *o.row(),
	}}
	row.row.DeliverAt = time.Time{} // what is loaded has no such column
	if reason == reasonScheduled {
		row.orderingKey = ""
	}
	w.table = append(w.table, row)
}

// postpone changes a row.
func (w *world) postpone(at int, o *outcome, reason string) {
	row := &w.table[at]
	row.notBefore, row.attempts, row.orderingKey, row.reason = o.notBefore, o.message.attempts, o.row().OrderingKey, reason
}

// decide ends the wait for a person: a dead letter that holds its lane is
// discarded.
func (w *world) decide(i int) {
	at := slices.IndexFunc(w.table, func(r tableRow) bool { return r.row.ID == w.dead[i].ID })
	if at < 0 {
		return
	}
	w.note("discard %d", w.dead[i].ID)
	w.table[at].notBefore = w.now
	w.dead = slices.Delete(w.dead, i, i+1)
}

// redrive puts a dead letter back, as an operator does: a row that the router
// knows nothing of.
func (w *world) redrive(i int) {
	row := w.dead[i]
	w.dead = slices.Delete(w.dead, i, i+1)
	w.redriven[row.ID] = true
	w.ended[row.ID] = 0
	if at := slices.IndexFunc(w.table, func(r tableRow) bool { return r.row.ID == row.ID }); at >= 0 {
		w.note("redrive %d in its place", row.ID)
		w.table[at].notBefore, w.table[at].reason = w.now, "redriven"
		return
	}
	w.note("redrive %d of %s/%s", row.ID, row.Queue, row.OrderingKey)
	w.table = append(w.table, tableRow{deferredRow: deferredRow{
		position: row.ID - 1_000_000, queue: row.Queue, orderingKey: row.OrderingKey, notBefore: w.now, row: row,
	}})
}

// ask starts a load, as of now; with poll it is the turn of rows whose time has
// come.
func (w *world) ask(poll bool) {
	if w.job != nil {
		return
	}
	j, ok := w.nextJob(w.now, poll)
	if !ok {
		return
	}
	w.job, w.snapshot = &j, w.query(j)
	w.note("ask %s", w.describe(j))
}

func (w *world) query(j job) []tableRow {
	var rows []tableRow
	for _, row := range w.table {
		var match bool
		switch h := j.hold; {
		case h == nil:
			match = !row.notBefore.IsZero() && !row.notBefore.After(w.now) && !slices.Contains(j.heldQueues, row.queue) &&
				(row.notBefore.After(j.afterTime) || row.notBefore.Equal(j.afterTime) && row.position > j.after)
		case h.lane == nil:
			match = row.queue == h.queue.name && row.position > j.after && row.reason != reasonScheduled
		case h.lane.key.orderingKey == wholeQueue:
			match = row.queue == h.queue.name && row.position > j.after && row.reason != reasonScheduled
		default:
			match = row.queue == h.queue.name && row.orderingKey == h.lane.key.orderingKey && row.position > j.after
		}
		if match {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b tableRow) int {
		if j.hold == nil {
			return cmp.Or(a.notBefore.Compare(b.notBefore), cmp.Compare(a.position, b.position))
		}
		return cmp.Compare(a.position, b.position)
	})
	return rows[:min(len(rows), j.limit)]
}

// get ends the load.
func (w *world) get() {
	if w.job == nil {
		return
	}
	rows := make([]deferredRow, len(w.snapshot))
	for i := range rows {
		rows[i] = w.snapshot[i].deferredRow
	}
	var ids []int64
	for _, row := range rows {
		ids = append(ids, row.row.ID)
	}
	w.note("get %v for %s", ids, w.describe(*w.job))
	w.loaded(w.now, *w.job, rows, len(rows) == w.job.limit)
	w.job = nil
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) describe(j job) string {
	if j.hold == nil {
		return "due"
	}
	if j.hold.lane == nil {
		return fmt.Sprintf("queue %s state %d after %d final %t", j.hold.queue.name, j.hold.state, j.after, j.final)
	}
	return fmt.Sprintf("lane %v state %d after %d final %t", j.hold.lane.key, j.hold.state, j.after, j.final)
}

func (w *world) pass(d time.Duration) {
	w.note("pass %s", d)
	w.now = w.now.Add(d)
	w.tick(w.now)
}

// TestPromise6_OrderPerOrderingKey: whatever the queue answers, in whatever order
// requests end, and however late the table follows, the first acceptances of an
// ordering key are in commit order, one request of a lane is in flight at a time,
// nothing is sent after its outcome, and nothing is left behind.
func TestPromise6_OrderPerOrderingKey(t *testing.T) {
	classes := []Class{UnknownOutcome, Transient, Transient, Transient, RateLimited, EndpointClosed, QueueClosed, Conflict, Refused}
	rapid.Check(t, func(t *rapid.T) {
		cfg := testConfig()
		cfg.DeferAfter, cfg.OverflowAfter, cfg.MaxAttempts = 2*time.Second, 3*time.Second, 50
		w := newWorld(t, cfg)
		settings := map[string]Settings{"z": {OrderedByQueue: true}}
		change := func(queue string, change func(*Settings)) {
			one := settings[queue]
			change(&one)
			settings = maps.Clone(settings)
			settings[queue] = one
			w.router.apply(w.now, settings)
		}
		w.router.apply(w.now, settings)
		pick := func(name string, n int) int { return rapid.IntRange(0, n-1).Draw(t, name) }
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) {
				queue := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "queue")
				w.commit(queue, rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "ordering key"))
			},
			"schedule": func(t *rapid.T) {
				w.schedule(rapid.SampledFrom([]string{"y", "z"}).Draw(t, "queue"), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "ordering key"),
					time.Duration(rapid.IntRange(1, 10_000).Draw(t, "ms"))*time.Millisecond)
			},
			"recover": func(t *rapid.T) {
				w.recover(rapid.SampledFrom([]string{"x", "z"}).Draw(t, "queue"), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "ordering key"))
			},
			"send": func(t *rapid.T) { w.send() },
			"accept": func(t *rapid.T) {
				if n := len(w.flying); n > 0 {
					w.comeBack(pick("which", n), nil)
				}
			},
			"fail": func(t *rapid.T) {
				if n := len(w.flying); n > 0 {
					w.comeBack(pick("which", n), failed(rapid.SampledFrom(classes).Draw(t, "class")))
				}
			},
			"write": func(t *rapid.T) {
				if n := len(w.written); n > 0 {
					w.write(pick("how many", n) + 1)
				}
			},
			"redrive": func(t *rapid.T) {
				if n := len(w.dead); n > 0 {
					w.redrive(pick("which", n))
				}
			},
			"ask": func(t *rapid.T) { w.ask(rapid.Bool().Draw(t, "poll")) },
			"get": func(t *rapid.T) { w.get() },
			"pass": func(t *rapid.T) {
				w.pass(time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ms")) * time.Millisecond)
			},
			"pause": func(t *rapid.T) {
				change(rapid.SampledFrom([]string{"x", "z"}).Draw(t, "queue"), func(s *Settings) { s.Paused = !s.Paused })
			},
			"hold on dead letter": func(t *rapid.T) {
				change(rapid.SampledFrom([]string{"y", "z"}).Draw(t, "queue"), func(s *Settings) { s.HoldOnDeadLetter = !s.HoldOnDeadLetter })
			},
			"decide": func(t *rapid.T) {
				if n := len(w.dead); n > 0 {
					w.decide(pick("which", n))
				}
			},
			"change ordering": func(t *rapid.T) {
				change("x", func(s *Settings) { s.OrderedByQueue = !s.OrderedByQueue })
			},
			"pace": func(t *rapid.T) {
				change("y", func(s *Settings) { s.RatePerSecond = 2 - s.RatePerSecond })
			},
			"": func(*rapid.T) { w.check() },
		})
		w.router.apply(w.now, map[string]Settings{"z": {OrderedByQueue: true}})
		w.finishAll()
	})
}

// TestPromise6_LanesBesideTheirQueue is the same for a queue that drains all the time
// while lanes of it wait for their time, drain beside it and become a part of it again.
func TestPromise6_LanesBesideTheirQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := testConfig()
		cfg.DeferAfter, cfg.OverflowAfter, cfg.BreakerFailures = time.Millisecond, 30*time.Second, 1000
		w := newWorld(t, cfg)
		key := rapid.SampledFrom([]string{"", "", "", "a", "b", "c"}) // lanes are short beside what their queue has
		live := rapid.Bool().Draw(t, "live")                          // lanes begin in memory, and their heads are in the air when the queue is held
		inherited := key
		if live {
			inherited = rapid.Just("") // else these lanes were held from the beginning
		}
		for range rapid.IntRange(2, 12).Draw(t, "rows") {
			w.inherit("y", inherited.Draw(t, "ordering key"), rapid.Bool().Draw(t, "failed"))
		}
		if live {
			for range rapid.IntRange(1, 6).Draw(t, "live messages") {
				w.commit("y", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "ordering key"))
			}
			for w.send() {
			}
		}
		settings := map[string]Settings{}
		change := func(change func(*Settings)) {
			one := settings["y"]
			change(&one)
			settings = map[string]Settings{"y": one}
			w.router.apply(w.now, settings)
		}
		if live {
			change(func(s *Settings) { s.Paused = true })
			change(func(s *Settings) { s.Paused = false })
		}
		w.holdQueues([]string{"y"})
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) {
				for range rapid.IntRange(1, 3).Draw(t, "messages") {
					w.commit("y", key.Draw(t, "ordering key"))
				}
			},
			"schedule":         func(t *rapid.T) { w.schedule("y", key.Draw(t, "ordering key"), time.Second) },
			"recover":          func(t *rapid.T) { w.recover("y", key.Draw(t, "ordering key")) },
			"bring back":       func(t *rapid.T) { w.bringBack("y", key.Draw(t, "ordering key")) },
			"commit to a lane": func(t *rapid.T) { w.commit("y", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "ordering key")) },
			"load both": func(t *rapid.T) {
				for _, poll := range []bool{true, false} {
					w.get()
					w.ask(poll)
					w.get()
				}
			},
			"accept the last": func(t *rapid.T) { // what was in the air first stays there
				if n := len(w.flying); n > 0 {
					w.comeBack(n-1, nil)
				}
			},
			"send": func(t *rapid.T) { w.send() },
			"accept": func(t *rapid.T) {
				if n := len(w.flying); n > 0 {
					w.comeBack(rapid.IntRange(0, n-1).Draw(t, "which"), nil)
				}
			},
			"fail": func(t *rapid.T) {
				if n := len(w.flying); n > 0 {
					w.comeBack(rapid.IntRange(0, n-1).Draw(t, "which"), failed(Transient))
				}
			},
			"write": func(t *rapid.T) {
				if n := len(w.written); n > 0 {
					w.write(rapid.IntRange(1, n).Draw(t, "how many"))
				}
			},
			"load": func(t *rapid.T) {
				w.ask(rapid.Bool().Draw(t, "poll"))
				w.get()
			},
			"ask":  func(t *rapid.T) { w.ask(rapid.Bool().Draw(t, "poll")) },
			"get":  func(t *rapid.T) { w.get() },
			"pass": func(t *rapid.T) { w.pass(time.Second) },
			"refuse": func(t *rapid.T) {
				if n := len(w.flying); n > 0 {
					w.comeBack(rapid.IntRange(0, n-1).Draw(t, "which"), failed(Refused))
				}
			},
			"close": func(t *rapid.T) {
				if n := len(w.flying); n > 0 {
					w.comeBack(rapid.IntRange(0, n-1).Draw(t, "which"), failed(QueueClosed))
				}
			},
			"redrive": func(t *rapid.T) {
				if n := len(w.dead); n > 0 {
					w.redrive(rapid.IntRange(0, n-1).Draw(t, "which"))
				}
			},
			"pause":               func(t *rapid.T) { change(func(s *Settings) { s.Paused = !s.Paused }) },
			"hold on dead letter": func(t *rapid.T) { change(func(s *Settings) { s.HoldOnDeadLetter = !s.HoldOnDeadLetter }) },
			"":                    func(*rapid.T) { w.check() },
		})
		w.router.apply(w.now, nil)
		w.finishAll()
	})
}

// check looks at what must hold at every moment: each row of the table is in memory,
// or something will read it; nobody holds a lane in which nothing is; and the deferrals
// that a hold waits for are those which are not durable.
func (w *world) check() {
	onWay, pending := map[int64]bool{}, map[*hold]int{}
	for _, o := range w.written {
		onWay[o.row().ID] = true
		for h := o.hold; h != nil; h = h.into {
			pending[h]++
		}
	}
	for key, l := range w.lanes {
		if l.idle() {
			w.dump()
			w.t.Fatalf("lane %v has nothing in memory and no hold", key)
		}
		w.checkPending(l.hold, pending)
	}
	for _, q := range w.queues {
		w.checkPending(q.hold, pending)
	}
	for i := range w.table {
		w.checkRow(&w.table[i].deferredRow, onWay)
	}
}

func (w *world) checkPending(h *hold, pending map[*hold]int) {
	if h != nil && h.pending != pending[h] {
		w.dump()
		w.t.Fatalf("hold %+v waits for %d deferrals, and %d are on their way", *h, h.pending, pending[h])
	}
}

func (w *world) checkRow(d *deferredRow, onWay map[int64]bool) {
	q := w.queues[d.queue]
	if q == nil || w.cache[d.row.ID] != nil || onWay[d.row.ID] || !d.notBefore.IsZero() {
		return // is in memory, changes, or is found when its time has come
	}
	h := q.hold
	if q.ordered(d.orderingKey) {
		if l := w.lanes[q.laneKey(d.orderingKey)]; l != nil && l.hold != nil {
			h = l.hold
		}
	}
	if h == nil || h.cursor >= d.position {
		w.dump()
		w.t.Fatalf("nobody will read the row of message %d at position %d", d.row.ID, d.position)
	}
}

// finishAll lets everything succeed, and looks whether each message has its outcome
// and nothing is left.
func (w *world) finishAll() {
	w.settle()
	for id := range int64(w.next) {
		if w.ended[id+1] != 1 {
			w.dump()
			w.t.Fatalf("message %d has %d outcomes, want 1", id+1, w.ended[id+1])
		}
	}
	if len(w.table) > 0 || len(w.cache) > 0 || len(w.lanes) > 0 || w.messages != 0 || w.bytes != 0 || len(w.draining) > 0 {
		w.t.Fatalf("left behind: %d rows, %d cached, %d lanes, %d messages and %d bytes in the window, %d draining",
			len(w.table), len(w.cache), len(w.lanes), w.messages, w.bytes, len(w.draining))
	}
	for name, q := range w.queues {
		if q.hold != nil || q.inMemory != 0 || q.inFlight != 0 {
			w.t.Fatalf("queue %s: hold %+v, %d in memory, %d in flight", name, q.hold, q.inMemory, q.inFlight)
		}
		if !q.live.oldest().IsZero() || !q.fetched.oldest().IsZero() {
			w.t.Fatalf("queue %s: nothing is left, and the oldest messages are of %s and %s", name, q.live.oldest(), q.fetched.oldest())
		}
	}
}

// settle lets everything succeed until nothing moves any more.
func (w *world) settle() {
	for range 20 * (int(w.next) + 20) {
		for _, poll := range []bool{true, false} {
			w.get()
			w.ask(poll)
		}
		w.get()
		for w.send() {
		}
		for len(w.flying) > 0 {
			w.comeBack(0, nil)
		}
		w.write(len(w.written))
		w.pass(20 * time.Second)
	}
}

// dump logs what a failure needs.
func (w *world) dump() {
	for _, line := range w.trace {
		w.t.Log(line)
	}
	w.t.Logf("endpoint %+v, now %s, %d in ring, %d delayed, %d flying, %d written, job %+v", w.endpoint, w.now, len(w.ring), len(w.delayed), len(w.flying), len(w.written), w.job)
	for name, q := range w.queues {
		w.t.Logf("queue %s: %+v", name, *q)
		if q.hold != nil {
			w.t.Logf("  hold %+v", *q.hold)
		}
	}
	for key, l := range w.lanes {
		w.t.Logf("lane %v: head %+v, %d waiting", key, l.head, l.waiting.n)
		if l.hold != nil {
			w.t.Logf("  hold %+v", *l.hold)
		}
	}
	for _, row := range w.table {
		w.t.Logf("row %+v", row)
	}
	for id, m := range w.cache {
		w.t.Logf("cached %d: %+v", id, *m)
	}
}
