package systemd_test

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/systemd"
)

// listen is the socket of a systemd.
func listen(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func heard(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	n, err := conn.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(buffer[:n])
}

func environment(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	}
}

func TestManager_Tell(t *testing.T) {
	t.Parallel()
	for name, socket := range map[string]string{
		"path":     filepath.Join(t.TempDir(), "notify"),
		"abstract": "@outbox-relay-test-" + strconv.Itoa(os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := listen(t, socket)
			m := systemd.Find(environment(map[string]string{"NOTIFY_SOCKET": socket}))
			if m == nil {
				t.Fatal("the socket is not found")
			}
			err := m.Tell(t.Context(), systemd.Ready, systemd.Status("two\nlines  of text"), systemd.ExtendTimeout(1500*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := heard(t, conn), "READY=1\nSTATUS=two lines of text\nEXTEND_TIMEOUT_USEC=1500000"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestManager_Tell_NobodyThere(t *testing.T) {
	t.Parallel()
	m := systemd.Find(environment(map[string]string{"NOTIFY_SOCKET": filepath.Join(t.TempDir(), "gone")}))
	if err := m.Tell(t.Context(), systemd.Alive); err == nil {
		t.Error("nobody has heard it, and there is no error")
	}
}

func TestFind_WithoutSystemd(t *testing.T) {
	t.Parallel()
	for _, socket := range []string{"", "vsock:2:1234", "relative"} {
		if systemd.Find(environment(map[string]string{"NOTIFY_SOCKET": socket})) != nil {
			t.Errorf("%q is taken for a socket", socket)
		}
	}
	if systemd.Find(environment(nil)) != nil {
		t.Error("a systemd is found where nothing names one")
	}
}

func TestManager_Watchdog(t *testing.T) {
	t.Parallel()
	own := strconv.Itoa(os.Getpid())
	for name, test := range map[string]struct {
		variables map[string]string
		want      time.Duration
	}{
		"none":                {nil, 0},
		"for anybody":         {map[string]string{"WATCHDOG_USEC": "30000000"}, 30 * time.Second},
		"for this process":    {map[string]string{"WATCHDOG_USEC": "250000", "WATCHDOG_PID": own}, 250 * time.Millisecond},
		"for another process": {map[string]string{"WATCHDOG_USEC": "250000", "WATCHDOG_PID": "1"}, 0},
		"not a number":        {map[string]string{"WATCHDOG_USEC": "soon"}, 0},
		"negative":            {map[string]string{"WATCHDOG_USEC": "-1"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			variables := map[string]string{"NOTIFY_SOCKET": "/run/notify"}
			maps.Copy(variables, test.variables)
			if got := systemd.Find(environment(variables)).Watchdog(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
