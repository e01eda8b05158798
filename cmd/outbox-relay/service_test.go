package main

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/systemd"
	"github.com/outbox-relay/outbox-relay/internal/vital"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

// manager plays systemd: it hears what a service says.
type manager struct {
	*net.UnixConn
	path string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &manager{UnixConn: conn, path: path}
}

// await returns everything up to the datagram that matches, that one included.
func (m *manager) await(t *testing.T, pattern string) (heard []string) {
	t.Helper()
	wanted, buffer := regexp.MustCompile(pattern), make([]byte, 4096)
	if err := m.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := m.Read(buffer)
		if err != nil {
			t.Fatalf("%s does not come: %v; heard %q", pattern, err, heard)
		}
		heard = append(heard, string(buffer[:n]))
		if wanted.Match(buffer[:n]) {
			return heard
		}
	}
}

func TestRun_TellsSystemd(t *testing.T) {
	t.Parallel()
	r, m := newRig(t), newManager(t)
	environment := r.with("NOTIFY_SOCKET", m.path, "WATCHDOG_USEC", "400000", "WATCHDOG_PID", strconv.Itoa(os.Getpid()))

	first := start(t, environment, "run")
	m.await(t, `READY=1`)
	first.AwaitMessage(t, "session began")
	r.insert(t, "one")
	m.await(t, `STATUS=active since .*, 1 message dispatched, 0 in memory\nWATCHDOG=1$`)
	first.stop(errStop)
	// Heard at once: the socket keeps few words, and a stop does not wait for room.
	m.await(t, `^STOPPING=1\nEXTEND_TIMEOUT_USEC=35000000$`)
	if code := first.end(); code != exitStopped {
		t.Errorf("exit code is %d", code)
	}
}

// A standby is a service that runs: nothing may wait for it to become active.
func TestRun_TellsSystemd_Standby(t *testing.T) {
	t.Parallel()
	r, m := newRig(t), newManager(t)
	start(t, r.settings, "run").AwaitMessage(t, "session began")
	start(t, r.with("NOTIFY_SOCKET", m.path), "run")
	heard := m.await(t, `STATUS=standby since .*, the slot is held by `)
	if all := strings.Join(heard, "\n"); !strings.Contains(all, systemd.Ready) || strings.Contains(all, systemd.Alive) {
		t.Errorf("heard %q: want READY=1, and no WATCHDOG=1 that nobody waits for", heard)
	}
}

// A database that is down is not mended by starting the relay again, nor does it
// keep the start of the service from its end.
func TestRun_TellsSystemd_WithoutDatabase(t *testing.T) {
	t.Parallel()
	r, m := newRig(t), newManager(t)
	environment := r.with("NOTIFY_SOCKET", m.path, "DATABASE_URL", "postgres://relay@127.0.0.1:1/nowhere?sslmode=disable")
	start(t, environment, "run")
	m.await(t, `(?s)STATUS=starting, not ready: .*connect.*READY=1`)
}

// Systemd is to report a start that failed.
func TestRun_TellsSystemd_SchemaMissing(t *testing.T) {
	t.Parallel()
	r, m := rigOn(t, pgtest.Database(t)), newManager(t)
	expectCode(t, r.with("NOTIFY_SOCKET", m.path), exitSchema, []string{"run"})
	m.SetReadDeadline(time.Now()) //nolint:errcheck // what has come can be read
	buffer := make([]byte, 4096)
	for n, err := m.Read(buffer); err == nil; n, err = m.Read(buffer) {
		if strings.Contains(string(buffer[:n]), systemd.Ready) {
			t.Errorf("heard %q from a relay that cannot run", buffer[:n])
		}
	}
}

// In a world of minutes: what is told of a relay in each state.
func TestService_News(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	before := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	socket := map[string]string{"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "30000000"}
	watched := systemd.Find(func(name string) (string, bool) { v, ok := socket[name]; return v, ok })

	for name, test := range map[string]struct {
		change func(*relay.State)
		want   []string
	}{
		"just started": {
			func(s *relay.State) { s.Phase = relay.Starting },
			[]string{"STATUS=starting, not ready: it is on its way to the stream", systemd.Alive},
		},
		"waits for the database": {
			func(s *relay.State) { s.Phase, s.Reason = relay.Starting, "no route to host" },
			[]string{"STATUS=starting, not ready: no route to host", systemd.Ready, systemd.Alive},
		},
		"takes long to start": {
			func(s *relay.State) { s.Phase, s.At = relay.Starting, now.Add(readyAfter) },
			[]string{"STATUS=starting, not ready: it is on its way to the stream", systemd.Ready, systemd.Alive},
		},
		"active": {
			func(*relay.State) {},
			[]string{"STATUS=active since 2026-03-01 11:59:00, 7 messages dispatched, 2 in memory", systemd.Ready, systemd.Alive},
		},
		"two queues are closed": {
			func(s *relay.State) {
				gate := relay.GateState{Closed: true, Class: "queue_closed", Since: before(time.Minute), Text: "404"}
				s.Router.Queues = []relay.QueueState{{Name: "a", Gate: gate, InMemory: 1}, {Name: "b", Gate: gate, InMemory: 1}}
			},
			[]string{"STATUS=active, not ready: queue a is closed, one request at a time tries whether it is back: queue_closed: 404 (and 1 more)", systemd.Ready, systemd.Alive},
		},
		"stuck": {
			func(s *relay.State) { s.Loops = []relay.LoopState{{Name: "clock", Busy: before(3 * time.Minute)}} },
			[]string{"STATUS=stuck: the loop clock has been at one piece of work for 3m0s", systemd.Ready},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := relay.State{
				At: now, Phase: relay.Active, Since: *before(time.Minute),
				Source: relay.SourceState{Doing: vital.Streaming, LastWord: &now, Turned: &now},
				Router: relay.RouterState{At: now, Messages: 2}, Totals: relay.Totals{Dispatched: 7},
			}
			test.change(&state)
			s := &service{manager: watched, started: now, admin: admin.Config{
				MaxAge: 30 * time.Second, StuckAfter: 2 * time.Minute, TrustWindow: 10 * time.Second,
			}}
			if got := s.news(&state); !slices.Equal(got, test.want) {
				t.Errorf("got\n%q, want\n%q", got, test.want)
			}
			if again := s.news(&state); slices.Contains(again, systemd.Ready) {
				t.Errorf("it becomes ready twice: %q", again)
			}
		})
	}
}

// The unit leaves to a person what only a person can mend, and everything else to
// another start.
func TestUnit_RestartsByExitCode(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../deploy/systemd/outbox-relay.service")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^RestartPreventExitStatus=(.*)$`).FindSubmatch(unit)
	if found == nil {
		t.Fatal("the unit has no RestartPreventExitStatus")
	}
	want := []string{strconv.Itoa(exitUsage), strconv.Itoa(exitSchema), strconv.Itoa(exitSlotLost), strconv.Itoa(exitNeedsPerson)}
	if got := strings.Fields(string(found[1])); !slices.Equal(got, want) {
		t.Errorf("the unit starts the relay again but for %v, want %v", got, want)
	}
}
