package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// request is one that the queue accepted as the n-th of all, at a second.
func request(key string, n int) *emulator.Entry {
	return &emulator.Entry{
		Route: publish, Key: key, Status: 200, Outcome: emulator.Accepted, Queue: queues[0],
		MessageIDs: []string{fmt.Sprintf("msg_00000001%012x", n)}, BodySHA256: strings.Repeat("0", 64),
	}
}

// story is a ledger, 100 seconds after its beginning, with three committed rows
// of one lane, a sick one and one that was rolled back: w0-0, w0-1, w0-2,
// sick1-w0-3, w0-4. Everything was committed at once.
func story(t *testing.T) *ledger {
	t.Helper()
	l := newLedger(newReport(1, 1, func(line string) { t.Log(line) }), 1, 1)
	l.report.begun = time.Now().Add(-100 * time.Second)
	well := row{delay: -1, priority: -1}
	sick := well
	sick.generation = 1
	l.end(0, l.begin(0, []row{well, well, well, sick}), 4, committed)
	l.end(0, l.begin(0, []row{well}), 1, rolledBack)
	for i := range l.writers[0] {
		l.writers[0][i].ended = 1000
	}
	return l
}

// at gives a request its time.
func at(l *ledger, m moment, e *emulator.Entry) *emulator.Entry {
	e.Time = l.report.time(m)
	return e
}

// want compares the kinds of violations with the only one that should be there;
// none if it is empty.
func want(t *testing.T, l *ledger, kind string) {
	t.Helper()
	for found, n := range l.report.kinds {
		if found != kind {
			t.Errorf("%d violations %q, want only %q", n, found, kind)
		}
	}
	if kind != "" && l.report.kinds[kind] == 0 {
		t.Errorf("no violation %q", kind)
	}
}

// The judge finds what it is there to find.
func TestLedger_FindsViolations(t *testing.T) {
	t.Parallel()
	with := func(e *emulator.Entry, change func(*emulator.Entry)) *emulator.Entry {
		change(e)
		return e
	}
	body := func(key, queue, payloadKey, fill, rest string) []byte {
		return fmt.Appendf(nil, `{"idempotency_key":%q,"payload":{"key":%q,"fill":%q},"queue":%q%s}`, key, payloadKey, fill, queue, rest)
	}
	withBody := func(b []byte) *emulator.Entry {
		return with(request("w0-0", 1), func(e *emulator.Entry) { e.Body = b })
	}
	for name, c := range map[string]struct {
		want     string // kinds of violations
		missing  int
		prepare  func(*ledger)
		requests []*emulator.Entry
	}{
		"all is well": {requests: []*emulator.Entry{request("w0-0", 1), request("w0-1", 2), request("w0-2", 3)}},
		"the journal is out of order, not the queue": {
			requests: []*emulator.Entry{request("w0-1", 2), request("w0-0", 1), request("w0-2", 3)},
		},
		"a repeat": {requests: []*emulator.Entry{
			request("w0-0", 1), request("w0-1", 2), request("w0-2", 3),
			with(request("w0-0", 4), func(e *emulator.Entry) { e.Outcome, e.MessageIDs = emulator.Replayed, nil }),
		}},
		"lost":         {missing: 1, requests: []*emulator.Entry{request("w0-0", 1), request("w0-2", 3)}},
		"out of order": {want: "order", requests: []*emulator.Entry{request("w0-0", 1), request("w0-1", 3), request("w0-2", 2)}},
		"twice": {want: "twice", requests: []*emulator.Entry{
			request("w0-0", 1), request("w0-1", 2), request("w0-2", 3), request("w0-1", 4),
		}},
		"rolled back":   {want: "phantom", missing: 3, requests: []*emulator.Entry{request("w0-4", 1)}},
		"never written": {want: "phantom", missing: 3, requests: []*emulator.Entry{request("w0-5", 1)}},
		"another name":  {want: "phantom", missing: 3, requests: []*emulator.Entry{request("x", 1)}},
		"a sick name":   {want: "phantom", missing: 3, requests: []*emulator.Entry{request("sick2-w0-3", 1)}},
		"still sick":    {want: "judge", missing: 3, requests: []*emulator.Entry{request("sick1-w0-3", 1)}},
		"healed": {
			missing: 3, prepare: func(l *ledger) { l.heal(1) },
			requests: []*emulator.Entry{request("sick1-w0-3", 1)},
		},
		"healed and lost": {missing: 4, prepare: func(l *ledger) { l.heal(1) }},
		"healed and out of order": {
			prepare:  func(l *ledger) { l.heal(1) },
			requests: []*emulator.Entry{request("sick1-w0-3", 1), request("w0-0", 2), request("w0-1", 3), request("w0-2", 4)},
		},
		"given up and accepted": {
			want: "discarded", missing: 3, prepare: func(l *ledger) { l.died("sick1-w0-3", true); l.heal(1) },
			requests: []*emulator.Entry{request("sick1-w0-3", 1)},
		},
		"a dead letter out of order": {
			prepare:  func(l *ledger) { l.died("w0-0", false) },
			requests: []*emulator.Entry{request("w0-1", 1), request("w0-2", 2), request("w0-0", 3)},
		},
		"dead and never written": {want: "phantom", missing: 3, prepare: func(l *ledger) { l.died("w0-9", false) }},
		"other bytes": {want: "bytes", requests: []*emulator.Entry{
			request("w0-0", 1), request("w0-1", 2), request("w0-2", 3),
			with(request("w0-0", 4), func(e *emulator.Entry) {
				e.Outcome, e.BodySHA256 = emulator.Conflicting, strings.Repeat("1", 64)
			}),
		}},
		"what was written":   {missing: 2, requests: []*emulator.Entry{withBody(body("w0-0", "orders", "w0-0", "", ""))}},
		"another payload":    {want: "content", missing: 2, requests: []*emulator.Entry{withBody(body("w0-0", "orders", "w0-1", "", ""))}},
		"another queue":      {want: "content", missing: 2, requests: []*emulator.Entry{withBody(body("w0-0", "audit", "w0-0", "", ""))}},
		"a longer payload":   {want: "content", missing: 2, requests: []*emulator.Entry{withBody(body("w0-0", "orders", "w0-0", "x", ""))}},
		"another delay":      {want: "content", missing: 2, requests: []*emulator.Entry{withBody(body("w0-0", "orders", "w0-0", "", `,"delay_seconds":0`))}},
		"another priority":   {want: "content", missing: 2, requests: []*emulator.Entry{withBody(body("w0-0", "orders", "w0-0", "", `,"priority":3`))}},
		"no JSON":            {want: "content", missing: 2, requests: []*emulator.Entry{withBody([]byte("{"))}},
		"before its time":    {want: "early", missing: 2, prepare: func(l *ledger) { l.writers[0][0].due = 2000 }, requests: []*emulator.Entry{request("w0-0", 1)}},
		"when its time came": {missing: 2, prepare: func(l *ledger) { l.writers[0][0].due = 1500 }, requests: []*emulator.Entry{request("w0-0", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := story(t)
			if c.prepare != nil {
				c.prepare(l)
			}
			for _, e := range c.requests {
				l.saw(at(l, 1500, e))
			}
			l.checkOrder()
			if missing, _ := l.missing(); missing != c.missing {
				t.Errorf("%d rows are missing, want %d", missing, c.missing)
			}
			want(t, l, c.want)
		})
	}
}

// A row that was sent before its transaction rolled back is found as well.
func TestLedger_FindsPhantomBeforeRollback(t *testing.T) {
	t.Parallel()
	l := story(t)
	first := l.begin(0, []row{{}})
	l.saw(at(l, 1000, request(key(0, first, 0), 1)))
	l.end(0, first, 1, rolledBack)
	want(t, l, "phantom")
}

// The last state of the tables is compared with what became of each message.
func TestLedger_FindsWrongRecords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want     string
		accepted bool
		heal     bool
		record   record
	}{
		"marked":                  {"", true, false, record{key: "w0-0", marked: true}},
		"sick and dead":           {"", false, false, record{key: "sick1-w0-3", dead: true}},
		"given up":                {"", false, true, record{key: "sick1-w0-3", dead: true, discarded: true}},
		"marked without request":  {"outcome", false, false, record{key: "w0-0", marked: true}},
		"marked and dead":         {"outcome", true, false, record{key: "w0-0", marked: true, dead: true}},
		"no outcome":              {"outcome", true, false, record{key: "w0-0"}},
		"dead for no reason":      {"dead letters", false, false, record{key: "w0-0", dead: true}},
		"healed and dead":         {"dead letters", false, true, record{key: "sick1-w0-3", dead: true}},
		"sick and without record": {"dead letters", false, false, record{key: "sick1-w0-3"}},
		"a false duplicate":       {"duplicates", true, false, record{key: "w0-0", marked: true, duplicate: true}},
		"rolled back":             {"judge", false, false, record{key: "w0-4", marked: true}},
		"never written":           {"judge", false, false, record{key: "w0-7", marked: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := story(t)
			if c.accepted {
				l.saw(at(l, 1500, request(c.record.key, 1)))
			}
			if c.heal {
				l.heal(1)
			}
			l.judgeRecord(&c.record)
			want(t, l, c.want)
		})
	}
}
