package judge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// request is one that the queue accepted as the n-th of all.
func request(key string, n int) *emulator.Entry {
	return &emulator.Entry{
		Route: publish, Key: key, Status: 200, Outcome: emulator.Accepted,
		MessageIDs: []string{fmt.Sprintf("msg_00000001%012x", n)}, BodySHA256: strings.Repeat("0", 64),
	}
}

// story is a ledger with three committed rows of one lane, a poisonous one and
// one that was rolled back: w0-0, w0-1, w0-2, poison0-3, w0-4.
func story(t *testing.T) *ledger {
	t.Helper()
	l := newLedger(newReport(1, func(line string) { t.Log(line) }), 1, 1)
	l.end(0, l.begin(0, []row{{}, {}, {}, {poison: true}}), 4, committed)
	l.end(0, l.begin(0, []row{{}}), 1, rolledBack)
	return l
}

// The judge finds what it is there to find.
func TestLedger_FindsViolations(t *testing.T) {
	t.Parallel()
	with := func(e *emulator.Entry, change func(*emulator.Entry)) *emulator.Entry {
		change(e)
		return e
	}
	for name, c := range map[string]struct {
		want     string // kinds of violations
		missing  int
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
		"poison":        {want: "poison", missing: 3, requests: []*emulator.Entry{request("poison0-3", 1)}},
		"other bytes": {want: "bytes", requests: []*emulator.Entry{
			request("w0-0", 1), request("w0-1", 2), request("w0-2", 3),
			with(request("w0-0", 4), func(e *emulator.Entry) {
				e.Outcome, e.BodySHA256 = emulator.Conflicting, strings.Repeat("1", 64)
			}),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := story(t)
			for _, e := range c.requests {
				l.saw(e)
			}
			l.checkOrder()
			if missing, _ := l.missing(); missing != c.missing {
				t.Errorf("%d rows are missing, want %d", missing, c.missing)
			}
			for kind, n := range l.report.kinds {
				if kind != c.want {
					t.Errorf("%d violations %q, want only %q", n, kind, c.want)
				}
			}
			if c.want != "" && l.report.kinds[c.want] == 0 {
				t.Errorf("no violation %q", c.want)
			}
		})
	}
}

// A row that was sent before its transaction rolled back is found as well.
func TestLedger_FindsPhantomBeforeRollback(t *testing.T) {
	t.Parallel()
	l := story(t)
	first := l.begin(0, []row{{}})
	l.saw(request(key(0, first, false), 1))
	l.end(0, first, 1, rolledBack)
	if l.report.kinds["phantom"] != 1 {
		t.Errorf("violations: %v, want a phantom", l.report.kinds)
	}
}
