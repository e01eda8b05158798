package relay

import "time"

// How rows of the table deferred come back into memory. One goroutine asks the
// router what to load, reads it, and gives it to the router; one load at a time.

// chunks are the numbers of rows that are read at once.
type chunks struct {
	queue int // of a queue
	lane  int // of a lane
	probe int // of a queue that may not be back yet: enough for one that never failed to be among them
	due   int // rows whose time has come
}

var wholeChunks = chunks{queue: 1000, lane: 100, probe: 100, due: 500}

const (
	// bytesShare is the part of the window's bytes that rows of the table may take
	// in memory, beside the live messages; of its messages they may take as many as
	// those. One chunk may go beyond either.
	bytesShare = 2
	// aheadTime is how long what is in memory of a draining scope should last, by
	// the speed at which it drains: long enough that reading is not what draining
	// waits for, and short because what is in memory cannot be withdrawn.
	aheadTime = 2 * time.Second
	// chunksAhead bounds it in chunks of a queue. Those count until their outcome is
	// durable: enough that a slow flush of the server is not what draining waits for.
	chunksAhead = 6
	// duePoll is how often rows are looked for whose time has come: also those
	// that somebody else put there.
	duePoll = time.Second
	// againPause is the wait before a row is read again that was not ready.
	againPause = 20 * time.Millisecond
)

// job is one thing to load.
type job struct {
	hold       *hold // nil: rows whose time has come
	generation int
	after      int64     // position of the last row that was read
	afterTime  time.Time // for rows whose time has come: of that row; zero at the beginning
	limit      int
	final      bool     // no deferral of the scope was on its way when the job was made
	heldQueues []string // for rows whose time has come: these wait for their queue
}

// fitting is the number of rows to ask for next. Rows that are large do not fit
// into a chunk's bytes: what is read beyond them is thrown away.
func fitting(before, limit, rows int, more bool, most int) int {
	switch {
	case more && rows < limit:
		return max(1, rows)
	case more:
		return min(2*before, most)
	}
	return before
}

// dueCursor is how far a look at the rows has come whose time has come: after a
// full chunk the next one follows it at once.
type dueCursor struct {
	more      bool
	notBefore time.Time
	position  int64
}

// nextJob returns what to load now, if there is something.
func (r *router) nextJob(now time.Time, poll bool) (job, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.gone)
	clear(r.changed)
	if r.stopped || len(r.cache) >= r.cfg.WindowMessages || r.cacheBytes >= r.cfg.WindowBytes/bytesShare {
		return job{}, false
	}
	r.startDraining(now)
	if poll {
		return r.dueJob(now), true
	}
	for h := range r.draining {
		if r.wantsMore(now, h) {
			h.loading = true
			return job{
				hold: h, generation: h.generation, after: h.cursor, limit: r.limitOf(now, h),
				final: h.state == closing && h.pending == 0,
			}, true
		}
	}
	if r.due.more {
		return r.dueJob(now), true
	}
	return job{}, false
}

// dueJob looks for rows whose time has come.
func (r *router) dueJob(now time.Time) job {
	j := job{after: r.due.position, afterTime: r.due.notBefore, limit: min(r.chunks.due, r.fit), heldQueues: []string{}}
	for name, q := range r.queues {
		if !r.takesDue(now, q) {
			j.heldQueues = append(j.heldQueues, name)
		}
	}
	return j
}

// takesDue reports whether rows of a queue may come whose time has come. While its
// backlog goes out they go along: it may last for very long.
func (r *router) takesDue(now time.Time, q *queue) bool {
	others := q.inMemory
	if q.hold != nil {
		others -= q.hold.cached
	}
	return r.flows(q) && r.sendable(now, q) && others < r.chunks.due
}

// flows reports whether messages of a queue go out, be it that others of it wait in
// the table for their turn.
func (r *router) flows(q *queue) bool {
	return q.hold == nil || q.hold.state == draining && !r.probing(q.hold)
}

// startDraining lets held queues drain, if only so far that there is something
// for a probe, and the lanes that had to stop with their queue.
func (r *router) startDraining(now time.Time) {
	for _, q := range r.queues {
		r.reorder(q)
		if q.hold != nil && q.hold.state == held && loadable(q) {
			r.drain(now, q.hold)
		}
	}
	for h := range r.parked {
		if r.flows(h.queue) && r.sendable(now, h.queue) {
			r.drain(now, h)
		}
	}
}

func (r *router) drain(now time.Time, h *hold) {
	h.state, h.drains = draining, now
	r.draining[h] = true
	delete(r.parked, h)
}

func (r *router) sendable(now time.Time, q *queue) bool {
	return loadable(q) && r.endpoint.permits(now) && q.gate.permits(now)
}

// loadable reports whether nobody wants the messages of a queue to stay in the
// table.
func loadable(q *queue) bool { return !q.settings.Paused && !q.reordering }

func (r *router) wantsMore(now time.Time, h *hold) bool {
	switch {
	case h.loading || h.dry && r.hasProbe(now, h) || h.cached >= r.ahead(h):
		return false
	case h.lane == nil:
		return loadable(h.queue) && (h.state == draining || h.pending == 0)
	case !r.flows(h.queue) || h.lane.busy() || h.stuck && h.cached > 0:
		return false // these come first
	}
	return r.sendable(now, h.queue) && (h.state == draining || h.pending == 0)
}

// probing reports whether a request of a scope would be a probe.
func (r *router) probing(h *hold) bool { return r.endpoint.closed || h.queue.gate.closed }

// hasProbe reports whether a scope that waits for a probe has one in memory, or
// need not have one yet.
func (r *router) hasProbe(now time.Time, h *hold) bool {
	return r.probing(h) && (h.cached > 0 || !r.sendable(now, h.queue))
}

func (r *router) chunkOf(h *hold) int {
	switch {
	case r.probing(h):
		return r.chunks.probe
	case h.lane != nil:
		return r.chunks.lane
	}
	return r.chunks.queue
}

// ahead is the number of rows in memory below which a scope wants more.
func (r *router) ahead(h *hold) int {
	if r.probing(h) {
		return r.chunks.probe / 2
	}
	least, _ := r.rooms(h)
	room := max(h.room, least)
	return max(room*2/3, room-r.chunkOf(h))
}

// rooms are the least and the most rows of a scope that may be in memory.
func (r *router) rooms(h *hold) (least, most int) {
	if h.lane != nil {
		return max(2, r.chunks.lane/5), r.chunks.lane
	}
	return r.chunks.lane, chunksAhead * r.chunks.queue
}

// limitOf is the number of rows to ask for. The room follows the speed at which
// rows went lately.
func (r *router) limitOf(now time.Time, h *hold) int {
	if r.probing(h) {
		return min(r.chunks.probe, r.fit)
	}
	least, most := r.rooms(h)
	h.room = min(max(int(h.speed.perSecond(now)*aheadTime.Seconds()), least), most)
	return max(1, min(r.chunkOf(h), r.fit, h.room-h.cached))
}

// loaded takes in what a job has read; more says that the table may have more of
// it. It reports whether it met a row that has to be read again in a moment: its
// message is not visible yet, or a change of the row is on its way.
func (r *router) loaded(now time.Time, j job, rows []deferredRow, more bool) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fit = fitting(r.fit, j.limit, len(rows), more, r.chunks.queue)
	if j.hold == nil {
		for i := range rows {
			r.takeDue(now, &rows[i])
		}
		r.due = dueCursor{}
		if n := len(rows); more && n > 0 {
			last := &rows[n-1]
			r.due = dueCursor{more: true, notBefore: last.notBefore, position: last.position}
		}
		return false
	}
	h := j.hold
	if h.generation != j.generation {
		return false
	}
	h.loading, h.stuck = false, false
	for i := range rows {
		d := &rows[i]
		if d.unseen {
			return true
		}
		if r.changing(h, d) {
			return true
		}
		if h.lane != nil && d.waits(now, h.queue) {
			// What is before it goes out; then the lane waits for its time.
			if h.stuck = h.cached > 0; !h.stuck {
				r.rehold(h)
			}
			return false
		}
		r.takeCached(now, h, d)
		h.cursor = d.position
	}
	switch {
	case more:
	case h.lane == nil && r.hasProbe(now, h):
		h.dry = true
	case h.lane != nil && h.queue.hold != nil:
		r.unhold(h)
	case h.state == draining && !r.nearEnd(h):
		return true
	case h.state == draining:
		h.state = closing
	case j.final:
		r.end(now, h)
	}
	return false
}

// changing reports whether the row is another one by now, or is about to be, so
// that it has to be read again. What is behind it waits for that.
func (r *router) changing(h *hold, d *deferredRow) bool {
	if r.changed[d.row.ID] {
		return true
	}
	m := r.cache[d.row.ID]
	if m == nil || !m.goingBack {
		return false
	}
	return h.lane != nil || m.lane == nil || m.lane.hold == nil
}

// nearEnd reports whether what is left of a scope will be gone soon, so that new
// messages may wait in memory for it: the slot waits with them.
func (r *router) nearEnd(h *hold) bool {
	if h.pending > r.chunkOf(h) {
		return false // these come to the table yet
	}
	return h.lane != nil || h.cached <= r.chunks.queue/2
}

// takeCached takes in a row of a draining scope.
func (r *router) takeCached(now time.Time, h *hold, d *deferredRow) {
	if r.cache[d.row.ID] != nil || r.gone[d.row.ID] {
		return
	}
	if h.lane == nil && h.queue.ordered(d.row.OrderingKey) {
		l := r.lanes[h.queue.laneKey(d.row.OrderingKey)]
		if l != nil && l.hold != nil {
			return // waits for its lane
		}
		if d.waits(now, h.queue) {
			l = r.ensureLane(h.queue, d.row.OrderingKey)
			l.hold = newHold(h.queue, l)
			r.joinLane(l)
			return
		}
	}
	if d.notBefore.After(now) && h.lane == nil {
		return // comes when its time has come
	}
	r.intoMemory(now, h, d)
}

// takeDue takes in a row whose time has come.
func (r *router) takeDue(now time.Time, d *deferredRow) {
	if r.cache[d.row.ID] != nil || r.gone[d.row.ID] || r.changed[d.row.ID] || d.unseen {
		return
	}
	q := r.queueOf(d.queue)
	switch {
	case !r.flows(q):
	case !q.ordered(d.row.OrderingKey):
		r.intoMemory(now, nil, d)
	case d.reason == reasonScheduled:
		r.takeScheduled(now, q, d)
	default:
		r.takeLane(now, q, d)
	}
}

// takeLane lets a lane drain whose first row's time has come.
func (r *router) takeLane(now time.Time, q *queue, d *deferredRow) {
	l := r.lanes[q.laneKey(d.row.OrderingKey)]
	if q.hold != nil && (l == nil || l.hold == nil) {
		switch {
		case d.position > q.hold.cursor:
			return // comes with its queue
		case l != nil && l.busy():
			// What waits behind the head follows it into the table when it is back, and
			// nothing may get there before. The row is found again.
			return
		}
	}
	l = r.ensureLane(q, d.row.OrderingKey)
	if l.hold == nil {
		l.hold = newHold(q, l)
	}
	if l.hold.state != held {
		return
	}
	r.drain(now, l.hold)
	if l.busy() && q.hold == nil {
		// Somebody put a row into the table while the lane was live. What is in
		// memory goes first, the row next, and what comes now waits for both.
		l.hold.state = closing
	}
	signal(r.load)
}

// takeScheduled gives a message of an ordering key that was scheduled its
// place: the one that it would have if it had been committed now.
func (r *router) takeScheduled(now time.Time, q *queue, d *deferredRow) {
	h := q.hold
	if l := r.lanes[q.laneKey(d.row.OrderingKey)]; l != nil && l.hold != nil {
		h = l.hold
	}
	if h == nil {
		r.intoMemory(now, nil, d)
		return
	}
	m := r.cacheMessage(now, nil, d)
	m.queue.inMemory--
	m.goingBack = true
	h.pending++
	r.emit(&outcome{message: m, state: requeued, hold: h, reason: reasonHeld})
}

// cacheMessage makes a message of a row.
func (r *router) cacheMessage(now time.Time, h *hold, d *deferredRow) *message {
	m := &message{
		row: &d.row, cached: true, taken: now, queue: r.queueOf(d.queue), hold: h,
		attempts: d.attempts, charged: d.charged, unknownAt: d.unknownAt,
	}
	if d.attempts > 0 && !d.notBefore.IsZero() {
		// It failed at the latest when its wait began.
		m.watched = d.notBefore.Add(-leastBackoff(d.attempts, r.cfg.DeferMin, min(r.cfg.DeferMax, r.cfg.ProbeMax)))
	}
	m.queue.inMemory++
	m.queue.fetched.add(now)
	r.cache[d.row.ID] = m
	r.cacheBytes += d.row.Size()
	if h != nil {
		h.cached++
	}
	return m
}

// intoMemory lets the message of a row go out.
func (r *router) intoMemory(now time.Time, h *hold, d *deferredRow) {
	m := r.cacheMessage(now, h, d)
	switch {
	case d.missing:
		m.queue.inMemory--
		r.emit(&outcome{message: m, state: withdrawn})
	case d.reason == reasonDeadLetter:
		m.queue.inMemory--
		r.emit(&outcome{message: m, state: released})
	case d.carried != nil:
		m.queue.inMemory--
		m.attempts = max(m.attempts, d.carried.message.attempts)
		r.emit(&outcome{message: m, state: dispatched, receipt: d.carried.receipt, duplicate: d.carried.duplicate})
	default:
		r.enqueue(now, m)
	}
}

// holdQueues says which queues have rows in the table when the session begins.
func (r *router) holdQueues(names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		q := r.queueOf(name)
		if q.hold == nil {
			q.hold = newHold(q, nil)
		}
	}
	signal(r.load)
}
