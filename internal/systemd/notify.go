package systemd

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// What a service can say.
const (
	// Ready ends the start of the service.
	Ready = "READY=1"
	// Stopping says that the service is on its way to its end.
	Stopping = "STOPPING=1"
	// Alive is what systemd waits for while it watches the service.
	Alive = "WATCHDOG=1"
)

// Status is a sentence for people, which `systemctl status` shows.
func Status(sentence string) string { return "STATUS=" + strings.Join(strings.Fields(sentence), " ") }

// ExtendTimeout asks for more time than the unit gives for a start or a stop that
// is under way.
func ExtendTimeout(d time.Duration) string {
	return "EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(d.Microseconds(), 10)
}

// Manager is the systemd that started this process. It may be used from many
// goroutines.
type Manager struct {
	socket   *net.UnixAddr
	watchdog time.Duration
}

// Find returns the systemd that the environment names, or nil if this process is
// no service of Type=notify. lookup is like os.LookupEnv.
func Find(lookup func(name string) (value string, ok bool)) *Manager {
	path, _ := lookup("NOTIFY_SOCKET")
	if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "@") {
		return nil // none, or one that is no Unix socket
	}
	return &Manager{socket: &net.UnixAddr{Name: path, Net: "unixgram"}, watchdog: watchdog(lookup)}
}

// watchdog is how often systemd wants to hear that the service is alive. The
// variables are inherited, and may be meant for a parent of this process.
func watchdog(lookup func(string) (string, bool)) time.Duration {
	if pid, ok := lookup("WATCHDOG_PID"); ok && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	text, _ := lookup("WATCHDOG_USEC")
	microseconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || microseconds <= 0 {
		return 0
	}
	return time.Duration(microseconds) * time.Microsecond
}

// Watchdog is the time after which systemd ends a service that has not said
// [Alive]; 0 if it does not watch.
func (m *Manager) Watchdog() time.Duration { return m.watchdog }

// sendTimeout bounds the wait for a systemd that does not read.
const sendTimeout = time.Second

// Tell says one or more things at once.
func (m *Manager) Tell(ctx context.Context, what ...string) error {
	conn, err := new(net.Dialer).DialContext(ctx, m.socket.Net, m.socket.Name)
	if err != nil {
		return fmt.Errorf("tell systemd: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("tell systemd: %w", err)
	}
	if _, err := conn.Write([]byte(strings.Join(what, "\n"))); err != nil {
		return fmt.Errorf("tell systemd: %w", err)
	}
	return nil
}
