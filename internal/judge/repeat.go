package judge

import "time"

// repeat is a request for a key that the queue had accepted before.
type repeat struct {
	name     name
	key      string
	at       moment
	answered moment // when the queue had said so; 0: never, because a fault kept it back
}

// The causes of a repeat, in the order in which they are asked for. Each counts
// from a while before the answer on: the request was under way then.
var causes = []struct {
	name   string
	parts  part
	before moment
}{
	{"the way to the queue broke", requests, aroundAnswer},
	{"a relay died, stopped or froze", processes, aroundAnswer},
	{"Postgres, or the way to it, broke", server | statements | stream | theSlot, aroundAnswer},
	{"the machine stood still", machine, aroundTimeout},
}

const (
	// aroundAnswer is how long before it an answer may have been spoilt.
	aroundAnswer = 500
	// aroundTimeout is longer than the time limit of requests in all runs.
	aroundTimeout = 2500
	// markDelay is how long after its commit a mark may not be seen by everybody.
	markDelay = 300 * time.Millisecond
	// lateAnswers is the overload from which on answers may come too late.
	lateAnswers = 2
	// commitSlack is what two clocks of one machine and milliseconds make.
	commitSlack = 20
)

// explainRepeats finds the cause of each repeat. marked says when the mark of a
// key was committed, for those that have one: what broke after that is no cause,
// and a session that began after that knows it.
func (l *ledger) explainRepeats(repeats []repeat, marked map[string]time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range repeats {
		if p.answered == 0 {
			l.report.duplicate("the answer was kept back")
			continue
		}
		l.report.duplicate(l.cause(p))
		if at, known := marked[p.key]; known && !l.at(p.name).told {
			l.judgeRepeat(p, l.report.moment(at))
		}
	}
}

// delaying is what may let a request come long after it was sent.
const delaying = requests | suspended | machine

// judgeRepeat is asked for a repeat of a message that is marked. The caller holds
// mu.
func (l *ledger) judgeRepeat(p repeat, marked moment) {
	from := p.answered - aroundTimeout
	_, delayed := l.history.first(delaying, from, p.at)
	began := l.history.sessionOf(p.at)
	broke, ok := l.history.first(marking|requests|machine, from, p.at)
	switch {
	case !delayed && marked+commitSlack < began:
		l.violate("repeat", p.key, "sent again at %v although marked at %v, by a session that began at %v", p.at, marked, began)
	case ok && broke.begin > marked+l.scaled(markDelay):
		l.violate("repeat", p.key, "sent again at %v although marked at %v; nothing broke before %v", p.at, marked, broke.begin)
	default:
		return
	}
	l.at(p.name).told = true
}

// cause is the name of what made a relay send something again, or tells that
// there is none. On an overloaded machine an answer may come too late for a
// relay, although nothing was seen to stand still.
func (l *ledger) cause(p repeat) string {
	for _, c := range causes {
		if _, ok := l.history.first(c.parts, p.answered-c.before, p.at); ok {
			return c.name
		}
	}
	if l.report.overload() >= lateAnswers {
		return "the machine was overloaded"
	}
	l.at(p.name).told = true
	l.violate("repeat", p.key, "sent again at %v: the queue said yes at %v, and nothing broke since", p.at, p.answered)
	return "unexplained"
}

// takeRepeats returns those that are to be explained.
func (l *ledger) takeRepeats() []repeat {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.repeats
	l.repeats = nil
	return taken
}
