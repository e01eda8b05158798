package judge

// checkOrder compares the first acceptances of every lane with the order of its
// commits, as far as both are known.
func (l *ledger) checkOrder() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.lanes {
		if !l.lanes[i].broken {
			l.checkLane(i)
		}
	}
}

// checkLane leaves out what the order does not bind: sick messages and those
// that were dead letters, which come when they are redriven, and deleted ones,
// which a crash may bring back.
func (l *ledger) checkLane(number int) {
	at := &l.lanes[number]
	last, before, whole := at.last, "", true
	for i := at.checked; i < len(at.rows); i++ {
		n := name{at.writer, int(at.rows[i])}
		r := l.at(n)
		switch {
		case !r.binds():
		case r.accepted == 0:
			whole = false
			continue
		case r.accepted < last:
			at.broken = true
			l.violate("order", l.key(n), "lane %d: accepted at place %d, %s before it in the lane at %d", number, r.accepted, before, last)
			if before != "" {
				l.cases = append(l.cases, before)
			}
			return
		default:
			last, before = r.accepted, l.key(n)
		}
		if whole {
			at.checked, at.last = i+1, last
		}
	}
}

// missing are committed rows that the queue has not accepted though it would.
func (l *ledger) missing() (count int, some []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.writers {
		for n := range l.writers[w] {
			r := &l.writers[w][n]
			if r.state == committed && !l.sick(r) && !r.discarded && r.accepted == 0 {
				if count++; len(some) < 20 {
					some = append(some, l.key(name{w, n}))
				}
			}
		}
	}
	return count, some
}
