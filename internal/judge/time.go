package judge

import "time"

// Bounds of what may take how long while nothing is wrong. All are multiplied by
// the scale of the run, and by how much the machine is overloaded.
const (
	recovery    = 10 * time.Second // until everything runs again after something broke
	promptness  = 8 * time.Second  // from commit, or deliver_at, to acceptance
	markPatient = 10 * time.Second // from an answer to its mark
	slotAge     = 15 * time.Second // how old the end of the WAL may be that the slot has reached
	withdrawal  = 10 * time.Second // until what is in memory of a deleted message is gone
)

// inHands is the number of messages of a queue that a relay may have in memory,
// and not sent yet, however slowly they go: it reads ahead a hundred, and a chunk
// of a hundred when half of them are left.
const inHands = 200

// scaled is a bound of this run.
func (l *ledger) scaled(d time.Duration) moment {
	return milliseconds(time.Duration(l.report.slack() * float64(d)))
}

// exceeded reports whether a bound was exceeded by what began at a moment. How
// long the machine stood still since then counts twice: what it held up has to be
// caught up with.
func (l *ledger) exceeded(d time.Duration, from, now moment) bool {
	return now-from > l.scaled(d) && now-from > l.scaled(d)+2*l.history.stood(from, now)
}

// judgeWithdrawn is asked at the first acceptance of a message that was deleted
// while it was deferred. What a relay had in its hands at that time may go out;
// after a crash of the server the slot goes back, and nothing records a
// withdrawal. The caller holds mu.
func (l *ledger) judgeWithdrawn(r *row, key string, at moment) {
	switch {
	case l.history.crashed(r.ended-l.scaled(recovery), at):
		l.report.count(&l.report.Withdrawals.AfterCrash)
	case l.taken[r.queue]-r.behind < inHands:
		l.report.count(&l.report.Withdrawals.UnderWay)
	case l.history.longestCalm(marking|requests, r.gone, at) < l.scaled(withdrawal)+2*l.history.stood(r.gone, at):
		l.report.count(&l.report.Withdrawals.UnderWay)
	default:
		l.violate("withdrawn", key, "accepted at %v, and withdrawn at %v", at, r.gone)
	}
}

// backlog is how far the queues are behind.
type backlog struct {
	waiting [8]int    // messages that wait for longer than a moment, by queue
	oldest  [8]moment // how long the first of them has waited
}

// waitMoment is how long a message may wait without being late.
const waitMoment = 2 * time.Second

// wants reports whether the queue should have accepted a row by now, and since
// when. The caller holds mu.
func (l *ledger) wants(r *row) (since moment, yes bool) {
	if r.state != committed || r.accepted != 0 || r.discarded || l.sick(r) || r.generation > 0 || r.dead {
		return 0, false
	}
	since = max(r.ended, r.due)
	if r.lane >= 0 {
		at := &l.lanes[r.lane]
		if at.blocked > 0 {
			return 0, false
		}
		since = max(since, at.free)
	}
	return since, true
}

// settled reports whether nothing is to be seen of a row any more, except
// repeats. The caller holds mu.
func (r *row) settled() bool {
	return r.state != open && (r.state != committed || r.accepted != 0 || r.discarded || r.generation > 0 || r.dead)
}

// behind looks for messages that wait. Those of a queue that has been well, and
// had caught up, since a moment must not wait for long; 0 is a queue that has not.
func (l *ledger) behind(now moment, well []moment) (b backlog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.writers {
		rows := l.writers[w]
		for l.old[w] < len(rows) && rows[l.old[w]].settled() {
			l.old[w]++
		}
		for n := l.old[w]; n < len(rows); n++ {
			l.lookAt(&b, name{w, n}, now, well)
		}
	}
	return b
}

// lookAt counts a row if it waits, and tells when it has waited for too long.
func (l *ledger) lookAt(b *backlog, n name, now moment, well []moment) {
	r := l.at(n)
	since, wanted := l.wants(r)
	if !wanted || now-since < l.scaled(waitMoment) {
		return
	}
	b.waiting[r.queue]++
	b.oldest[r.queue] = max(b.oldest[r.queue], now-since)
	if r.told {
		return
	}
	if calm := well[r.queue]; calm > 0 && l.exceeded(promptness, max(since, calm), now) {
		r.told = true
		l.violate("late", l.key(n), "not accepted at %v: committed at %v, due %v, its queue well since %v", now, r.ended, r.due, calm)
	}
}
