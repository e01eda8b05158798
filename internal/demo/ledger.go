package demo

import (
	"cmp"
	"fmt"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// ledger is the facts with what is found in them by key.
type ledger struct {
	facts
	committed map[string]bool     // keys
	accepted  map[string][]string // key to the ids of its messages, in the order of acceptance
	lanes     map[lane][]string   // keys in the order of their commits
}

// lane is what must arrive in order.
type lane struct{ queue, orderingKey string }

func newLedger(f facts) *ledger {
	l := &ledger{facts: f, committed: map[string]bool{}, accepted: map[string][]string{}, lanes: map[lane][]string{}}
	for _, m := range f.messages {
		l.committed[m.key] = true
		if m.orderingKey != "" {
			l.lanes[lane{m.queue, m.orderingKey}] = append(l.lanes[lane{m.queue, m.orderingKey}], m.key)
		}
	}
	for _, r := range f.requests {
		if r.outcome == emulator.Accepted {
			l.accepted[r.key] = append(l.accepted[r.key], r.message)
		}
	}
	return l
}

// finding is a number of keys that something is the matter with, and one of
// them.
type finding struct {
	count int64
	such  string
}

func (f *finding) add(key string) {
	f.count++
	f.such = cmp.Or(f.such, key)
}

// says is "" without a finding, and else what it is.
func (f finding) says(what string) string {
	if f.count == 0 {
		return ""
	}
	return fmt.Sprintf("%s, such as %s", what, f.such)
}

// lost are the committed keys that the queue never accepted.
func (l *ledger) lost() (f finding) {
	for _, m := range l.messages {
		if len(l.accepted[m.key]) == 0 {
			f.add(m.key)
		}
	}
	return f
}

// phantom are the requests for keys that never committed.
func (l *ledger) phantom() (f finding) {
	for _, r := range l.requests {
		if !l.committed[r.key] {
			f.add(r.key)
		}
	}
	return f
}

// outOfOrder are the keys that were accepted before one of the same ordering
// key that had committed earlier. Repeats do not count: the queue knows them.
func (l *ledger) outOfOrder() (f finding) {
	for _, keys := range l.lanes {
		latest := ""
		for _, key := range keys {
			if len(l.accepted[key]) == 0 {
				continue // lost, which is another matter
			}
			if first := l.accepted[key][0]; first < latest {
				f.add(key)
			} else {
				latest = first
			}
		}
	}
	return f
}

// acceptedTwice are the keys that the queue took for two messages.
func (l *ledger) acceptedTwice() (f finding) {
	for key, messages := range l.accepted {
		if len(messages) > 1 {
			f.add(key)
		}
	}
	return f
}

// changed are the keys whose requests were not all the same bytes.
func (l *ledger) changed() (f finding) {
	digests := map[string]string{}
	for _, r := range l.requests {
		if first := cmp.Or(digests[r.key], r.digest); first != r.digest {
			f.add(r.key)
		}
		digests[r.key] = r.digest
	}
	return f
}

// notHandledOnce are the committed keys whose event was not handled, or more
// than once, and the handled events that nobody committed.
func (l *ledger) notHandledOnce() (f finding) {
	for _, m := range l.messages {
		if l.effects[m.key] != 1 {
			f.add(m.key)
		}
	}
	for event := range l.effects {
		if !l.committed[event] {
			f.add(event)
		}
	}
	return f
}

// unmarked are the committed keys that are not recorded as dispatched.
func (l *ledger) unmarked() (f finding) {
	for _, m := range l.messages {
		if !l.marked[m.key] {
			f.add(m.key)
		}
	}
	return f
}

// outcomes counts the requests that ended so.
func (l *ledger) outcomes(o emulator.Outcome) (n int64) {
	for _, r := range l.requests {
		if r.outcome == o {
			n++
		}
	}
	return n
}

// statuses counts the requests that were answered so; 0 is not at all.
func (l *ledger) statuses(status int) (n int64) {
	for _, r := range l.requests {
		if r.status == status {
			n++
		}
	}
	return n
}
