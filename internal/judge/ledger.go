package judge

import (
	"strconv"
	"strings"
	"sync"
	"time"
)

// state is what a writer knows of a row.
type state uint8

const (
	open       state = iota // written, its transaction has not ended
	committed               // must be accepted
	rolledBack              // must never be seen
	deleted                 // maybe, or too early or too late: may be accepted or not
	withdrawn               // deleted while it was deferred: must not be accepted any more
)

// row is all that the judge remembers of a message.
type row struct {
	accepted   uint64 // its place among all acceptances; 0 before the first
	body       [8]byte
	requests   uint32
	lane       int32  // -1 without ordering key
	due        moment // deliver_at; 0 without: with one, its ordering key binds it to nothing
	ended      moment // its transaction was known to be committed
	first      moment // its first acceptance
	answered   moment // the last time that the queue said yes and nothing kept that back
	gone       moment // it was withdrawn
	behind     uint32 // how many messages its queue had taken by then
	fill       uint16
	state      state
	generation uint8 // of sick messages, which the queue refuses for a while; 0 is well
	queue      uint8
	delay      int8
	priority   int8
	dead       bool // it was seen among the dead letters, once
	blocks     bool // its lane waits for it, as far as is known
	discarded  bool // an operator gave it up
	told       bool // a violation that is looked for again and again was told
}

// sick reports whether the queue refuses it. The caller holds mu.
func (l *ledger) sick(r *row) bool { return r.generation > l.healed }

// binds reports whether the order of its lane binds the row.
func (r *row) binds() bool {
	return r.generation == 0 && !r.dead && (r.state == committed || r.state == open)
}

// lane is the committed rows of one ordering key, in the order of their commits.
type lane struct {
	writer  int
	rows    []int32
	checked int    // up to here all are accepted, in order
	last    uint64 // the acceptance of the row before
	broken  bool   // a violation was told
	blocked int    // rows in it that may keep the others waiting for long
	free    moment // when the last one was out of the way
}

// name is where a row stands.
type name struct{ writer, n int }

// ledger is what was written and what the queue saw. It is safe for concurrent
// use.
type ledger struct {
	report  *Report
	history *history

	mu      sync.Mutex
	writers [][]row
	lanes   []lane
	taken   [8]uint32 // by queue, how many messages it has accepted
	healed  uint8     // sick messages up to this generation are accepted
	old     []int     // for each writer: what is before needs nothing any more
	marks   []name    // accepted, and not known to be marked
	repeats []repeat
	cases   []string // keys of which the history should be told
}

func newLedger(report *Report, writers, lanes int) *ledger {
	l := &ledger{
		report: report, history: &history{report: report},
		writers: make([][]row, writers), lanes: make([]lane, lanes), old: make([]int, writers),
	}
	for i := range l.lanes {
		l.lanes[i].writer = i % writers
	}
	return l
}

// at is the row of a name. The caller holds mu.
func (l *ledger) at(n name) *row { return &l.writers[n.writer][n.n] }

// key is the key of a name. The caller holds mu.
func (l *ledger) key(n name) string { return key(n.writer, n.n, l.at(n).generation) }

// find is the row of a key, or nil. The caller holds mu.
func (l *ledger) find(text string) (name, *row) {
	rest, generation := text, 0
	if number, after, isSick := strings.Cut(strings.TrimPrefix(text, "sick"), "-w"); isSick {
		generation, _ = strconv.Atoi(number)
		rest = "w" + after
	}
	first, second, _ := strings.Cut(strings.TrimPrefix(rest, "w"), "-")
	writer, err := strconv.Atoi(first)
	n, err2 := strconv.Atoi(second)
	if err != nil || err2 != nil || writer < 0 || writer >= len(l.writers) || n < 0 || n >= len(l.writers[writer]) {
		return name{}, nil
	}
	r := &l.writers[writer][n]
	if int(r.generation) != generation {
		return name{}, nil
	}
	return name{writer, n}, r
}

// violate tells of a broken promise to one message, and has its history told.
// The caller holds mu.
func (l *ledger) violate(kind, key, format string, args ...any) {
	if l.report.violate(kind, key+": "+format, args...) {
		l.cases = append(l.cases, key)
	}
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
	now := l.report.moment(time.Now())
	for i := first; i < first+n; i++ {
		r := &l.writers[writer][i]
		r.state, r.ended = s, now
		switch {
		case s == rolledBack && r.requests > 0:
			l.violate("phantom", key(writer, i, r.generation), "sent and rolled back")
		case s == committed && r.lane >= 0 && r.due == 0:
			l.lanes[r.lane].rows = append(l.lanes[r.lane].rows, int32(i))
			if r.generation > 0 && !r.dead && r.accepted == 0 {
				l.block(r)
			}
		}
	}
	l.report.transaction(s, n)
}

// deleting notes that a committed row is about to be deleted: from now on
// anything may happen to it.
func (l *ledger) deleting(n name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at(n).state = deleted
}

// kept notes that a row was not deleted after all.
func (l *ledger) kept(n name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at(n).state = committed
	l.old[n.writer] = min(l.old[n.writer], n.n)
}

// withdraw notes that a row was deleted while it was deferred, and that this is
// durable.
func (l *ledger) withdraw(n name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.at(n)
	r.state, r.gone, r.behind = withdrawn, l.report.moment(time.Now()), l.taken[r.queue]
}

// heal notes that the queue takes the sick messages of a generation from now on,
// and of all before it.
func (l *ledger) heal(generation uint8) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.healed = generation
}

// died notes that a message is among the dead letters.
func (l *ledger) died(text string, discarded bool) (n name, sick bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, r := l.find(text)
	if r == nil {
		l.report.violate("phantom", "%q is dead and was never written", text)
		return n, true
	}
	r.dead, r.discarded = true, r.discarded || discarded
	l.unblock(r)
	return n, l.sick(r)
}

// redriving notes that a dead letter is about to be redriven: it goes before the
// others of its lane.
func (l *ledger) redriving(n name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.block(l.at(n))
}

// block notes that a lane may have to wait for a row. The caller holds mu, as
// that of unblock does.
func (l *ledger) block(r *row) {
	if !r.blocks && r.lane >= 0 {
		r.blocks = true
		l.lanes[r.lane].blocked++
	}
}

// unblock notes that it does not have to wait any more.
func (l *ledger) unblock(r *row) {
	if r.blocks {
		r.blocks = false
		at := &l.lanes[r.lane]
		at.blocked--
		at.free = l.report.moment(time.Now())
	}
}

// well reports whether a message never was a sick one.
func (l *ledger) well(n name) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at(n).generation == 0
}
