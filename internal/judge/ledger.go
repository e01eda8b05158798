package judge

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// state is what a writer knows of a row.
type state uint8

const (
	open       state = iota // written, its transaction has not ended
	committed               // must be accepted
	rolledBack              // must never be seen
	withdrawn               // deleted after its commit: may be accepted or not, at any time
)

// row is all that the judge remembers of a message.
type row struct {
	accepted uint64 // its place among all acceptances; 0 before the first
	body     [8]byte
	requests uint32
	lane     int32 // -1 without ordering key
	state    state
	poison   bool // the queue refuses it for good
	later    bool // has a deliver_at: its ordering key binds it to nothing
	answered bool // an answer of the queue's own that says yes was sent
}

// lane is the committed rows of one ordering key, in the order of their commits.
type lane struct {
	writer  int
	rows    []int32
	checked int    // up to here all are accepted, in order
	last    uint64 // the acceptance of the row before
	broken  bool   // a violation was told
}

// ledger is what was written and what the queue saw. It is safe for concurrent
// use.
type ledger struct {
	report *Report

	mu      sync.Mutex
	writers [][]row
	lanes   []lane
}

func newLedger(report *Report, writers, lanes int) *ledger {
	l := &ledger{report: report, writers: make([][]row, writers), lanes: make([]lane, lanes)}
	for i := range l.lanes {
		l.lanes[i].writer = i % writers
	}
	return l
}

// key names a row. A poisonous one is known by its beginning.
func key(writer, n int, poison bool) string {
	if poison {
		return fmt.Sprintf("%s%d-%d", poisonPrefix, writer, n)
	}
	return fmt.Sprintf("w%d-%d", writer, n)
}

const poisonPrefix = "poison"

// find is the row of a key, or nil. The caller holds mu.
func (l *ledger) find(key string) *row {
	name, isPoison := strings.CutPrefix(key, poisonPrefix)
	if !isPoison {
		name = strings.TrimPrefix(key, "w")
	}
	first, second, _ := strings.Cut(name, "-")
	writer, err := strconv.Atoi(first)
	n, err2 := strconv.Atoi(second)
	if err != nil || err2 != nil || writer < 0 || writer >= len(l.writers) || n < 0 || n >= len(l.writers[writer]) {
		return nil
	}
	return &l.writers[writer][n]
}

// begin notes rows that are about to be written and returns the number of the
// first.
func (l *ledger) begin(writer int, rows []row) (first int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = len(l.writers[writer])
	l.writers[writer] = append(l.writers[writer], rows...)
	return first
}

// end notes what became of rows.
func (l *ledger) end(writer, first, n int, s state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := first; i < first+n; i++ {
		r := &l.writers[writer][i]
		r.state = s
		switch {
		case s == rolledBack && r.requests > 0:
			l.report.violate("phantom", "%s was sent and rolled back", key(writer, i, r.poison))
		case s == committed && r.lane >= 0 && !r.later:
			l.lanes[r.lane].rows = append(l.lanes[r.lane].rows, int32(i))
		}
	}
	l.report.transaction(s, n)
}

// withdraw notes that a committed row is about to be deleted.
func (l *ledger) withdraw(writer, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writers[writer][n].state = withdrawn
}

// saw takes in a request that the queue got.
func (l *ledger) saw(e *emulator.Entry) {
	if e.Route != "queue.publish" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.find(e.Key)
	if r == nil {
		l.report.violate("phantom", "%q was sent and never written", e.Key)
		return
	}
	if r.state == rolledBack {
		l.report.violate("phantom", "%s was sent and rolled back", e.Key)
	}
	l.compare(r, e)
	l.count(r, e)
	if e.Outcome != emulator.Accepted {
		return
	}
	if r.accepted != 0 {
		l.report.violate("twice", "%s was accepted twice", e.Key)
		return
	}
	r.accepted = place(e)
	if r.poison {
		l.report.violate("poison", "%s was accepted", e.Key)
	}
}

// compare checks that all requests of a key carry the same bytes.
func (l *ledger) compare(r *row, e *emulator.Entry) {
	var body [8]byte
	if n, err := hex.Decode(body[:], []byte(e.BodySHA256)[:16]); err != nil || n != len(body) {
		l.report.violate("journal", "%s: digest %q", e.Key, e.BodySHA256)
	}
	if r.requests > 0 && r.body != body {
		l.report.violate("bytes", "%s was sent with different bytes", e.Key)
	}
	if e.Outcome == emulator.Conflicting {
		l.report.violate("bytes", "%s: the queue knows the key with another body", e.Key)
	}
	r.body = body
}

// count sorts requests by why they came.
func (l *ledger) count(r *row, e *emulator.Entry) {
	switch {
	case r.requests == 0:
		l.report.Requests.First++
	case r.answered:
		l.report.Requests.AfterAnswer++
	case r.accepted != 0:
		l.report.Requests.AfterLostAnswer++
	default:
		l.report.Requests.AfterFailure++
	}
	r.requests++
	if e.Fault == 0 && e.Status == 200 {
		r.answered = true
	}
}

// place is the place of an acceptance among all of a server: the end of the
// message's id. The journal itself is in the order in which answers were made.
func place(e *emulator.Entry) uint64 {
	if len(e.MessageIDs) != 1 {
		return 0
	}
	id := e.MessageIDs[0]
	n, err := strconv.ParseUint(id[max(0, len(id)-12):], 16, 64)
	if err != nil {
		return 0
	}
	return n
}

// checkOrder compares the first acceptances of every lane with the order of its
// commits, as far as both are known. It returns the keys around each violation.
func (l *ledger) checkOrder() (suspects []map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.lanes {
		if l.lanes[i].broken {
			continue
		}
		if keys := l.checkLane(i); keys != nil {
			suspects = append(suspects, keys)
		}
	}
	return suspects
}

func (l *ledger) checkLane(number int) (suspects map[string]bool) {
	at := &l.lanes[number]
	last, before, whole := at.last, "", true
	for i := at.checked; i < len(at.rows); i++ {
		n := int(at.rows[i])
		r := &l.writers[at.writer][n]
		switch {
		case r.poison, r.state == withdrawn: // a deletion that came late may come back after a crash
		case r.accepted == 0:
			whole = false
			continue
		case r.accepted < last:
			at.broken = true
			l.report.violate("order", "lane %d: %s was accepted at %d, %s before it in the lane at %d",
				number, key(at.writer, n, false), r.accepted, before, last)
			return l.around(at, i)
		default:
			last, before = r.accepted, key(at.writer, n, false)
		}
		if whole {
			at.checked, at.last = i+1, last
		}
	}
	return nil
}

// around are the keys of a lane near a place.
func (l *ledger) around(at *lane, place int) map[string]bool {
	keys := map[string]bool{}
	for _, n := range at.rows[max(0, place-8):min(len(at.rows), place+5)] {
		keys[key(at.writer, int(n), l.writers[at.writer][n].poison)] = true
	}
	return keys
}

// missing are committed rows that the queue has not accepted though it would.
func (l *ledger) missing() (count int, some []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.writers {
		for n := range l.writers[w] {
			r := &l.writers[w][n]
			if r.state == committed && !r.poison && r.accepted == 0 {
				if count++; len(some) < 20 {
					some = append(some, key(w, n, false))
				}
			}
		}
	}
	return count, some
}

// committed counts the committed rows, the poisonous ones among them, and those
// that were withdrawn.
func (l *ledger) committed() (all, poison, gone int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.writers {
		for n := range l.writers[w] {
			switch r := &l.writers[w][n]; {
			case r.state == withdrawn:
				gone++
			case r.state == committed && r.poison:
				poison++
				all++
			case r.state == committed:
				all++
			}
		}
	}
	return all, poison, gone
}
