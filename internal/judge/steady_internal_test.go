package judge

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// What a relay loses shows in how small it gets.
func TestGrowth_FindsWhatIsLost(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, c := range map[string]struct {
		wrong bool
		life  time.Duration
		at    func(second int) int64
	}{
		"flat":              {false, 2 * time.Minute, func(int) int64 { return 30 }},
		"large at first":    {false, 2 * time.Minute, func(s int) int64 { return int64(90 - s/2) }},
		"a peak at the end": {false, 2 * time.Minute, func(s int) int64 { return int64(30 + s/119*50) }},
		"it grows":          {true, 2 * time.Minute, func(s int) int64 { return int64(30 + s) }},
		"a short life":      {false, 40 * time.Second, func(s int) int64 { return int64(30 + s) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &growth{}
			for s := 1; s <= int(c.life/time.Second); s++ {
				g.sizes = append(g.sizes, size{age: time.Duration(s) * time.Second, memory: c.at(s) * mib})
			}
			if wrong := g.judge(); (wrong != "") != c.wrong {
				t.Errorf("found %q", wrong)
			}
		})
	}
	if runtime.GOOS == "linux" {
		g := &growth{}
		g.begin()
		if now, ok := g.measure(os.Getpid()); !ok || now.files == 0 {
			t.Errorf("this process has the size %+v", now)
		}
	}
}

// A relay's log is searched for what should never be there.
func TestReadLog_FindsErrors(t *testing.T) {
	t.Parallel()
	line := func(level, message string) string {
		return fmt.Sprintf(`{"level":%q,"time":"x","msg":%q}`, level, message)
	}
	for name, c := range map[string]struct {
		found int
		fault string
		text  string
	}{
		"nothing":        {0, "", line("info", "session began")},
		"a warning":      {0, "", line("warn", "publish failed")},
		"a dead letter":  {0, "", line("error", "dead letter")},
		"an alarm":       {1, "slot dropped", line("error", "messages recovered that the stream did not show")},
		"a lost slot":    {1, "", line("error", "slot lost, a new one takes its place")},
		"a dropped slot": {0, "slot dropped", line("error", "slot lost, a new one takes its place")},
		"an error":       {1, "", line("error", "retention is not permitted") + "\n" + line("error", "retention is not permitted")},
		"a race":         {1, "", "WARNING: DATA RACE"},
		"a panic":        {1, "", "panic: nil"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &relays{report: newReport(1, 1, func(line string) { t.Log(line) })}
			if c.fault != "" {
				s.report.fault(c.fault, "")
			}
			s.readLog(1, c.text)
			if got := s.report.kinds["log"]; got != c.found {
				t.Errorf("%d violations, want %d", got, c.found)
			}
		})
	}
}

// The slot follows the end of the WAL while Postgres is well.
func TestSlot_FindsWhatIsBehind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want      string
		confirmed int64 // in the end, when the WAL is at 60, one a second
		retained  int64
		prepare   func(*ledger)
	}{
		"close":                   {"", 59, 100, func(*ledger) {}},
		"a little behind":         {"", 50, 100, func(*ledger) {}},
		"behind":                  {"slot", 40, 100, func(*ledger) {}},
		"behind and Postgres ill": {"", 40, 100, func(l *ledger) { disturb(l, stream, 50_000, 51_000) }},
		"behind and just well":    {"", 40, 100, func(l *ledger) { disturb(l, processes, 40_000, 46_000) }},
		"behind and a dead queue": {"slot", 40, 100, func(l *ledger) { disturb(l, allQueues()|requests, 1_000, 0) }},
		"it keeps too much":       {"slot", 59, maxRetained + 1, func(*ledger) {}},
		"no slot":                 {"slot", -1, -1, func(*ledger) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := story(t)
			c.prepare(l)
			w := &watcher{run: &run{ledger: l, history: l.history, report: l.report}}
			for s := range 60 {
				w.samples = append(w.samples, sample{moment(1000 * s), int64(s)})
			}
			w.judgeSlot(60_000, &sight{end: 60, confirmed: c.confirmed, retained: c.retained})
			want(t, l, c.want)
		})
	}
}
