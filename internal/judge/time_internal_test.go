package judge

import (
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// disturb notes what was done to a part between two moments.
func disturb(l *ledger, parts part, begin, end moment) {
	l.history.all = append(l.history.all, &disturbance{parts: parts, name: "fault", begin: begin, end: end})
}

// repeated is a request for a key that the queue knows.
func repeated(key string) *emulator.Entry {
	e := request(key, 9)
	e.Outcome, e.MessageIDs = emulator.Replayed, nil
	return e
}

// A message that was withdrawn while it was deferred is not accepted, except
// what was under way, and what a crash brought back.
func TestLedger_FindsWithdrawn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want     string
		accepted moment
		prepare  func(*ledger)
	}{
		"at once":              {"", 21_000, func(*ledger) {}},
		"late":                 {"withdrawn", 31_000, func(*ledger) {}},
		"of a slow queue":      {"", 31_000, func(l *ledger) { l.taken[l.writers[0][0].queue] -= 2 * inHands }},
		"after a frozen relay": {"", 31_000, func(l *ledger) { disturb(l, processes, 20_500, 30_500) }},
		"after a short one":    {"withdrawn", 45_000, func(l *ledger) { disturb(l, processes, 20_500, 30_500) }},
		"after a crash": {"", 45_000, func(l *ledger) {
			l.history.all = append(l.history.all, &disturbance{parts: server, begin: 25_000, end: 26_000, crash: true})
		}},
		"after a restart": {"withdrawn", 45_000, func(l *ledger) { disturb(l, server, 25_000, 26_000) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := story(t)
			l.withdraw(name0(0))
			l.writers[0][0].gone = 20_000
			l.taken[l.writers[0][0].queue] += 2 * inHands
			c.prepare(l)
			l.saw(at(l, c.accepted, request("w0-0", 1)))
			want(t, l, c.want)
		})
	}
}

func name0(n int) name { return name{0, n} }

// A message of a queue that is well, and had caught up, is accepted soon.
func TestLedger_FindsLate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want    string
		well    moment
		waiting int
		prepare func(*ledger)
	}{
		"its queue is well":              {"late", 1000, 3, func(*ledger) {}},
		"its queue has not caught up":    {"", 0, 3, func(*ledger) {}},
		"its queue is well for a moment": {"", 25_000, 3, func(*ledger) {}},
		"it was accepted": {"", 1000, 0, func(l *ledger) {
			for i, key := range []string{"w0-0", "w0-1", "w0-2"} {
				l.saw(at(l, 1500, request(key, i+1)))
			}
		}},
		"the machine stood still":   {"", 1000, 3, func(l *ledger) { disturb(l, machine, 2_000, 14_000) }},
		"the machine stood a while": {"late", 1000, 3, func(l *ledger) { disturb(l, machine, 2_000, 4_000) }},
		"its time has just come": {"", 1000, 0, func(l *ledger) {
			for i := range 3 {
				l.writers[0][i].due = 29_000
			}
		}},
		"its time has come long ago": {"late", 1000, 3, func(l *ledger) {
			for i := range 3 {
				l.writers[0][i].due = 15_000
			}
		}},
		"its lane waits for a sick one": {"", 1000, 0, func(l *ledger) { l.block(&l.writers[0][3]) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := story(t)
			l.unblock(&l.writers[0][3])
			l.lanes[0].free = 1000
			c.prepare(l)
			b := l.behind(30_000, []moment{c.well, 0, 0, 0})
			if b.waiting[0] != c.waiting {
				t.Errorf("%d wait, want %d", b.waiting[0], c.waiting)
			}
			want(t, l, c.want)
		})
	}
}

// What the queue said yes to is marked soon while Postgres is well.
func TestLedger_FindsMissingMarks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want    string
		now     moment
		left    int
		marked  bool
		prepare func(*ledger)
	}{
		"marked":                             {"", 40_000, 0, true, func(*ledger) {}},
		"not yet":                            {"", 25_000, 1, false, func(*ledger) {}},
		"not in time":                        {"mark", 31_000, 0, false, func(*ledger) {}},
		"statements did not get through":     {"", 45_000, 1, false, func(l *ledger) { disturb(l, statements, 21_000, 30_000) }},
		"statements get through since then":  {"mark", 51_000, 0, false, func(l *ledger) { disturb(l, statements, 21_000, 30_000) }},
		"the relay died with the answer":     {"", 60_000, 0, false, func(l *ledger) { disturb(l, processes, 20_100, 22_000) }},
		"the answer did not get to a relay":  {"", 60_000, 0, false, func(l *ledger) { disturb(l, requests, 19_000, 20_000) }},
		"something broke long before":        {"mark", 31_000, 0, false, func(l *ledger) { disturb(l, marking, 5_000, 6_000) }},
		"the machine stood still":            {"", 33_000, 0, false, func(l *ledger) { disturb(l, machine, 21_000, 26_000) }},
		"the queue is down, Postgres is not": {"mark", 31_000, 0, false, func(l *ledger) { disturb(l, allQueues(), 20_100, 31_000) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := story(t)
			c.prepare(l)
			l.saw(at(l, 20_000, request("w0-0", 1)))
			wanted := l.wantedMarks(c.now)
			if len(wanted) != 1 {
				t.Fatalf("wanted are %v, want one", wanted)
			}
			marked := map[string]time.Time{}
			if c.marked {
				marked["w0-0"] = l.report.time(20_010)
			}
			l.judgeMarks(wanted, marked, c.now)
			if len(l.marks) != c.left {
				t.Errorf("%d marks are still wanted, want %d", len(l.marks), c.left)
			}
			want(t, l, c.want)
		})
	}
}

// Each request for a key that was accepted has a cause.
func TestLedger_ExplainsRepeats(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want    string
		cause   string
		marked  moment // 0: not
		prepare func(*ledger, *emulator.Entry)
	}{
		"no cause":               {"repeat", "unexplained", 0, func(*ledger, *emulator.Entry) {}},
		"the answer was lost":    {"", "the answer was kept back", 0, func(_ *ledger, e *emulator.Entry) { e.Fault, e.Status = 1, 0 }},
		"the connection broke":   {"", "the way to the queue broke", 0, func(l *ledger, _ *emulator.Entry) { disturb(l, requests, 20_100, 20_100) }},
		"the relay died":         {"", "a relay died, stopped or froze", 20_010, func(l *ledger, _ *emulator.Entry) { disturb(l, processes, 20_100, 21_000) }},
		"the server died":        {"", "Postgres, or the way to it, broke", 0, func(l *ledger, _ *emulator.Entry) { disturb(l, server, 20_100, 21_000) }},
		"it died long before":    {"repeat", "unexplained", 0, func(l *ledger, _ *emulator.Entry) { disturb(l, processes, 10_000, 11_000) }},
		"it died after the mark": {"repeat", "a relay died, stopped or froze", 20_010, func(l *ledger, _ *emulator.Entry) { disturb(l, processes, 25_000, 26_000) }},
		"it died without a mark": {"", "a relay died, stopped or froze", 0, func(l *ledger, _ *emulator.Entry) { disturb(l, processes, 25_000, 26_000) }},
		"a session that should know": {"repeat", "a relay died, stopped or froze", 20_090, func(l *ledger, _ *emulator.Entry) {
			disturb(l, processes, 20_100, 21_000)
			l.history.session(22_000)
		}},
		"a session that cannot know": {"", "a relay died, stopped or froze", 23_000, func(l *ledger, _ *emulator.Entry) {
			disturb(l, processes, 20_100, 21_000)
			l.history.session(22_000)
			l.history.session(31_000)
		}},
		"a relay that was frozen": {"", "a relay died, stopped or froze", 20_090, func(l *ledger, _ *emulator.Entry) {
			disturb(l, processes|suspended, 20_100, 29_000)
			l.history.session(22_000)
		}},
		"the queue was only slower": {"repeat", "unexplained", 0, func(l *ledger, _ *emulator.Entry) { disturb(l, allQueues(), 20_100, 26_000) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := story(t)
			first := request("w0-0", 1)
			c.prepare(l, first)
			l.saw(at(l, 20_000, first))
			l.saw(at(l, 30_000, repeated("w0-0")))
			marked := map[string]time.Time{}
			if c.marked > 0 {
				marked["w0-0"] = l.report.time(c.marked)
			}
			l.explainRepeats(l.takeRepeats(), marked)
			if l.report.Duplicates[c.cause] != 1 {
				t.Errorf("causes are %v, want %q", l.report.Duplicates, c.cause)
			}
			want(t, l, c.want)
		})
	}
}

func TestHistory_TellsCalm(t *testing.T) {
	t.Parallel()
	l := story(t)
	disturb(l, server, 10_000, 20_000)
	disturb(l, stream, 12_000, 15_000)
	disturb(l, machine, 30_000, 35_000)
	disturb(l, machine, 50_000, 52_000)
	disturb(l, requests, 40_000, 0)
	h := l.history
	for _, c := range []struct{ got, want moment }{
		{h.calmSince(marking, 5_000), 0},
		{h.calmSince(marking, 15_000), 15_000},
		{h.calmSince(marking, 30_000), 20_000},
		{h.calmSince(requests, 39_000), 0},
		{h.calmSince(requests, 50_000), 50_000},
		{h.longestCalm(marking, 5_000, 22_000), 5_000},
		{h.longestCalm(marking, 15_000, 30_000), 10_000},
		{h.longestCalm(marking|requests, 0, 60_000), 20_000},
		{h.longestCalm(processes, 1_000, 60_000), 59_000},
		{h.stood(0, 60_000), 7_000},
		{h.stood(32_000, 51_000), 4_000},
	} {
		if c.got != c.want {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
}
