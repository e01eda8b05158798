package scenario_test

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// takeovers is how often each takeover is measured. docs/performance.md has the
// figures of five.
var takeovers = flag.Int("takeovers", 1, "how many takeovers of each kind are measured")

// member is one of two relays with a way of its own to the queue.
type member struct {
	t       *testing.T
	env     map[string]string
	process *relaybin.Process

	mu       sync.Mutex
	answered []time.Time // by the queue
}

// newMember starts one.
func newMember(t *testing.T, w *scenario.World) *member {
	t.Helper()
	m := &member{t: t, env: maps.Clone(w.Env)}
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		w.Queue.ServeHTTP(answer, r)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.answered = append(m.answered, time.Now())
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	m.env["INFRAI_BASE_URL"] = server.URL
	m.start()
	return m
}

func (m *member) start() {
	m.t.Helper()
	m.process = relaybin.Run(m.t, m.env, "run")
}

// awaitAnswer returns when the queue first answered after a moment.
func (m *member) awaitAnswer(after time.Time) (at time.Time) {
	m.t.Helper()
	pgtest.Eventually(m.t, scenario.Patience, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if i, _ := slices.BinarySearchFunc(m.answered, after, time.Time.Compare); i < len(m.answered) {
			at = m.answered[i]
			return nil
		}
		return fmt.Errorf("no answer after %v", after.Format("05.000"))
	})
	return at
}

// awaitStandby waits until the process stands by for the n-th time.
func (m *member) awaitStandby(n int) {
	m.t.Helper()
	pgtest.Eventually(m.t, scenario.Patience, func() error {
		if got := m.standbys(); got < n {
			return fmt.Errorf("stood by %d times", got)
		}
		return nil
	})
}

func (m *member) standbys() int {
	return len(linesWith(m.process, "slot is held by another session, standing by"))
}

func (m *member) signal(s syscall.Signal) {
	m.t.Helper()
	if err := m.process.Signal(s); err != nil {
		m.t.Fatal(err)
	}
}

// takeOver lets act happen to the active one of two relays under load, again and
// again, and returns how long it took until the queue answered the other.
// comeBack makes the first one stand by.
func takeOver(t *testing.T, act, comeBack func(*member)) (w *scenario.World, took []time.Duration) {
	t.Helper()
	w = scenario.New(t)
	active := newMember(t, w)
	active.process.AwaitLog(t, "session began")
	standby := newMember(t, w)
	standby.awaitStandby(1)
	stop := w.Writers(4) // 200 messages a second
	for range *takeovers {
		active.awaitAnswer(time.Now())
		began := time.Now()
		act(active)
		took = append(took, standby.awaitAnswer(began).Sub(began))
		comeBack(active)
		active, standby = standby, active
	}
	stop()
	w.Settle()
	noDeadLetters(t, w)
	return w, took
}

// reportTakeovers writes the figures, and fails if the slowest one took too long.
func reportTakeovers(t *testing.T, took []time.Duration, most time.Duration) {
	t.Helper()
	slices.Sort(took)
	var all []string
	for _, d := range took {
		all = append(all, d.Round(time.Millisecond).String())
	}
	t.Logf("median %v of %s", took[len(took)/2].Round(time.Millisecond), strings.Join(all, ", "))
	if slowest := took[len(took)-1]; slowest > most {
		t.Errorf("a takeover took %v, want at most %v", slowest, most)
	}
}

// A rolling update: the active relay is stopped, the other goes on. The bounds
// here and below only catch what is broken: the machine has other work.
func TestTakeover_AfterSIGTERM(t *testing.T) {
	t.Parallel()
	_, took := takeOver(t, func(m *member) { m.signal(syscall.SIGTERM) }, func(m *member) {
		m.process.AwaitExit(t, 0)
		m.start()
		m.awaitStandby(1)
	})
	reportTakeovers(t, took, 10*time.Second)
}

// OPS-08: the active relay is killed: its sockets go with it, so the server notices at once.
func TestTakeover_AfterKill(t *testing.T) {
	t.Parallel()
	_, took := takeOver(t, func(m *member) { m.signal(syscall.SIGKILL) }, func(m *member) {
		m.process.AwaitExit(t, -1)
		m.start()
		m.awaitStandby(1)
	})
	reportTakeovers(t, took, 15*time.Second)
}

// The active relay is frozen: the server gives its slot away after
// RELAY_WAL_SENDER_TIMEOUT, 15 seconds. When it wakes up it sends nothing of
// what it had in hand, and stands by.
func TestTakeover_FromAFrozenRelay(t *testing.T) {
	t.Parallel()
	var stood int
	w, took := takeOver(t, func(m *member) {
		stood = m.standbys()
		m.signal(syscall.SIGSTOP)
	}, func(m *member) {
		m.signal(syscall.SIGCONT)
		m.awaitStandby(stood + 1)
	})
	reportTakeovers(t, took, 45*time.Second)
	if epoch := w.Count(`select epoch from outbox.relays`); epoch < int64(1+*takeovers) {
		t.Errorf("epoch is %d after %d takeovers", epoch, *takeovers)
	}
}
