package relay

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// rowOfQ is a row of the table, of queue q.
func rowOfQ(position, id int64, orderingKey, reason string, notBefore time.Time) deferredRow {
	return deferredRow{
		position: position, queue: "q", reason: reason, notBefore: notBefore, orderingKey: orderingKey,
		row: outbox.Row{ID: id, Queue: "q", OrderingKey: orderingKey},
	}
}

// drainWith holds queue q while what flies stays in the air, and lets it drain: one
// row of it is read, and there are more.
func (r *rig) drainWith(row deferredRow) {
	r.apply(r.now, map[string]Settings{"q": {Paused: true}})
	r.pass(time.Millisecond)
	if r.queueOf("q").hold == nil {
		r.holdQueues([]string{"q"})
	}
	r.apply(r.now, map[string]Settings{})
	job, ok := r.nextJob(r.now, false)
	if !ok || job.hold != r.queueOf("q").hold {
		panic("the queue does not drain")
	}
	r.loaded(r.now, job, []deferredRow{row}, true)
}

// leave lets the row go that drainWith has read.
func (r *rig) leave(id int64) {
	m := r.takeOne()
	if m == nil || m.row.ID != id {
		panic("another message goes out")
	}
	r.resolved([]*outcome{r.end(m, nil)})
}

// The head of a lane is in the air since before its queue was held, and messages of
// the lane wait behind it in memory. A row of the lane that somebody put into the table
// must not send what comes now there ahead of them.
func TestPromise6_RowOfALaneWhoseHeadIsInTheAir(t *testing.T) {
	r := newRig(testConfig())
	r.chunks = chunks{queue: 2, lane: 2, probe: 2, due: 10}
	first, second := r.put("q", "a"), r.put("q", "a")
	r.takeOne()
	r.drainWith(rowOfQ(1, 1001, "", reasonHeld, time.Time{}))
	job, _ := r.nextJob(r.now, true)
	r.loaded(r.now, job, []deferredRow{rowOfQ(-7, 1007, "a", "redriven", r.now)}, false)
	third := r.put("q", "a")
	r.apply(r.now, map[string]Settings{"q": {Paused: true}})
	r.end(first, nil)
	for _, o := range r.emitted {
		switch {
		case o.state == deferred && o.message == second:
			return
		case o.state == deferred && o.message == third:
			t.Fatal("the third message went into the table before the second")
		}
	}
	t.Fatal("the second message did not go into the table")
}

// What a queue has read behind the live head of a lane is not forgotten when the head
// is back: its row is before the queue's cursor.
func TestPromise4_RowBehindALiveHeadIsNotForgotten(t *testing.T) {
	r := newRig(testConfig())
	r.chunks = chunks{queue: 2, lane: 2, probe: 2, due: 10}
	first, second := r.put("q", "a"), r.put("q", "a")
	r.takeOne()
	r.drainWith(rowOfQ(1, 1001, "", reasonHeld, time.Time{}))
	scheduled := rowOfQ(2, 1002, "", reasonScheduled, r.now)
	scheduled.row.OrderingKey, scheduled.orderingKey = "a", ""
	job, _ := r.nextJob(r.now, true)
	r.loaded(r.now, job, []deferredRow{scheduled}, false)
	if n := len(r.emitted); n > 0 && r.emitted[n-1].state == requeued {
		r.resolved(r.emitted[n-1:])
		r.leave(1001)
		job, _ = r.nextJob(r.now, false)
		if job.hold == nil || job.hold.lane != nil {
			t.Fatal("the queue reads nothing")
		}
		r.loaded(r.now, job, []deferredRow{rowOfQ(3, 1002, "a", reasonHeld, time.Time{})}, true)
		r.end(first, nil)
		q := r.queueOf("q")
		if r.cache[1002] == nil && q.hold.cursor >= 3 {
			t.Errorf("the row is neither in memory nor before the cursor %d", q.hold.cursor)
		}
	} else {
		r.end(first, nil)
	}
	var deferredSecond bool
	for _, o := range r.emitted {
		deferredSecond = deferredSecond || o.message == second && o.state == deferred
	}
	if !deferredSecond {
		t.Error("the second message did not go into the table")
	}
}

// A row of a lane whose time has not come, behind one in the air, is not read again
// and again meanwhile.
func TestRouter_RowThatWaitsBehindOneInTheAirIsReadOnce(t *testing.T) {
	for _, drains := range []bool{false, true} {
		r := newRig(testConfig())
		r.chunks = chunks{queue: 2, lane: 20, probe: 2, due: 10}
		if drains {
			r.holdQueues([]string{"q"})
			for range 2 {
				job, _ := r.nextJob(r.now, false)
				r.loaded(r.now, job, []deferredRow{rowOfQ(2+max(job.after, 0), 2000+int64(len(r.cache)), "", reasonHeld, time.Time{})}, true)
			}
			r.queueOf("q").hold.cached += 100000 // it wants no more
		}
		redriven, waits := rowOfQ(-7, 1007, "a", "redriven", r.now), rowOfQ(1, 1001, "a", "transient", r.now.Add(time.Minute))
		job, _ := r.nextJob(r.now, true)
		r.loaded(r.now, job, []deferredRow{redriven}, false)
		reads := 0
		for range 50 {
			job, ok := r.nextJob(r.now, false)
			if !ok || job.hold == nil || job.hold.lane == nil {
				break
			}
			reads++
			rows := []deferredRow{redriven, waits}
			if job.after >= -7 {
				rows = rows[1:]
			}
			r.loaded(r.now, job, rows, false)
		}
		if reads == 0 || reads > 2 {
			t.Errorf("queue drains %t: the lane was read %d times while its first message waits for its request", drains, reads)
		}
	}
}

// A row that comes with its queue makes no lane: a lane without messages and hold
// would stay for ever.
func TestRouter_RowThatComesWithItsQueueMakesNoLane(t *testing.T) {
	r := newRig(testConfig())
	r.chunks = chunks{queue: 2, lane: 2, probe: 2, due: 10}
	r.drainWith(rowOfQ(1, 1001, "", reasonHeld, time.Time{}))
	job, _ := r.nextJob(r.now, true)
	r.loaded(r.now, job, []deferredRow{rowOfQ(7, 1007, "a", "recovered", r.now)}, false)
	if len(r.lanes) != 0 {
		t.Errorf("%d lanes, and nothing is in them", len(r.lanes))
	}
}

// While a queue is closed, no more of it stays in memory than probes need, also of
// its lanes: others need the room.
func TestRouter_LanesBesideAClosedQueueLeaveMemory(t *testing.T) {
	cfg := testConfig()
	cfg.DeferAfter, cfg.WindowMessages = 2*time.Second, 20
	r := newRig(cfg)
	r.chunks = chunks{queue: 2, lane: 10, probe: 2, due: 10}
	r.drainWith(rowOfQ(1, 1001, "", reasonHeld, time.Time{}))
	var due []deferredRow
	for i := range int64(9) {
		due = append(due, rowOfQ(-20+i, 1020+i, "a", "redriven", r.now), rowOfQ(-40+i, 1040+i, "b", "redriven", r.now))
	}
	due = append(due, rowOfQ(-60, 1060, "", "redriven", r.now), rowOfQ(-61, 1061, "", "redriven", r.now))
	job, _ := r.nextJob(r.now, true)
	r.loaded(r.now, job, due, false)
	for range 30 {
		job, ok := r.nextJob(r.now, false)
		if !ok {
			break
		}
		if job.hold == nil || job.hold.lane == nil {
			continue
		}
		var rows []deferredRow
		for _, d := range due {
			if d.orderingKey == job.hold.lane.key.orderingKey && d.position > job.after && len(rows) < job.limit {
				rows = append(rows, d)
			}
		}
		r.loaded(r.now, job, rows, len(rows) == job.limit)
	}
	t.Logf("%d rows in memory, of which the queue has read %d", len(r.cache), r.queueOf("q").hold.cached)
	r.queueOf("q").gate.close(r.now, QueueClosed, time.Hour)
	r.pass(3 * time.Second)
	r.holdQueues([]string{"other"})
	if len(r.cache) > r.chunks.probe {
		t.Errorf("%d rows of a closed queue are in memory, want no more than %d", len(r.cache), r.chunks.probe)
	}
	if _, ok := r.nextJob(r.now, false); !ok {
		t.Error("nothing is loaded of another queue")
	}
}

// TestPromise6_HeadInTheAir is the property for lanes whose heads are in the air since
// before their queue was held, while rows come that others put into the table.
func TestPromise6_HeadInTheAir(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := testConfig()
		w := newWorld(t, cfg)
		for range 3 {
			w.commit("y", "a")
		}
		w.send()
		for range 6 {
			w.inherit("y", "", false)
		}
		w.holdQueues([]string{"y"})
		load := func(*rapid.T) {
			for _, poll := range []bool{true, false} {
				w.get()
				w.ask(poll)
				w.get()
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(*rapid.T) { w.commit("y", "a") },
			"commit to others": func(*rapid.T) {
				for range 3 {
					w.commit("y", "")
				}
			},
			"schedule":   func(*rapid.T) { w.schedule("y", "a", time.Second) },
			"bring back": func(*rapid.T) { w.bringBack("y", "a") },
			"load":       load,
			"follow": func(t *rapid.T) {
				w.write(len(w.written))
				load(t)
			},
			"write": func(*rapid.T) { w.write(len(w.written)) },
			"pass":  func(*rapid.T) { w.pass(time.Second) },
			"others": func(*rapid.T) {
				for w.send() {
				}
				for n := len(w.flying); n > 1; n-- {
					w.comeBack(n-1, nil)
				}
			},
			"pause": func(*rapid.T) {
				w.router.apply(w.now, map[string]Settings{"y": {Paused: true}})
				w.router.apply(w.now, nil)
			},
			"head": func(t *rapid.T) {
				if len(w.flying) > 0 && rapid.IntRange(0, 3).Draw(t, "back") == 0 {
					w.comeBack(0, nil)
				}
			},
			"": func(*rapid.T) { w.check() },
		})
		w.finishAll()
	})
}
