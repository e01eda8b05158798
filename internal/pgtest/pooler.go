package pgtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/child"
)

// Pooler starts a pgbouncer before the server of a connection string, and
// returns the string that leads through it. It hands out transactions, all of
// them on one session of the server, and takes every user without a password.
// ignored are startup parameters that it does not refuse. It ends with the test.
func Pooler(t TB, server string, ignored ...string) string {
	t.Helper()
	through, process, err := startPooler(server, ignored)
	if err != nil {
		t.Fatalf("start pgbouncer: %v", err)
	}
	t.Cleanup(func() { _ = process.Kill() })
	return through
}

func startPooler(server string, ignored []string) (through string, process *child.Process, err error) {
	program, err := findPooler()
	if err != nil {
		return "", nil, err
	}
	address, err := url.Parse(server)
	if err != nil {
		return "", nil, err
	}
	port, held, err := freePort()
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = held.Close() }() // it has the port itself by then, and is not restarted
	as, err := serverAccount()          // it does not run as root either
	if err != nil {
		return "", nil, err
	}
	settings, remove, err := poolerSettings(address, port, ignored)
	if err != nil {
		return "", nil, err
	}
	command := exec.Command(program, "--quiet", settings)
	command.SysProcAttr = attributes(as)
	process, err = child.Start(command, remove)
	if err != nil {
		remove()
		return "", nil, err
	}
	address.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if err := awaitListener(process, address.Host); err != nil {
		return "", nil, errors.Join(err, process.Kill())
	}
	return address.String(), process, nil
}

// findPooler looks where Debian puts it, which is not on everybody's PATH.
func findPooler() (string, error) {
	for _, place := range []string{os.Getenv("OUTBOX_PGBOUNCER"), "pgbouncer", "/usr/sbin/pgbouncer"} {
		if program, err := exec.LookPath(cmp.Or(place, "pgbouncer")); err == nil {
			return program, nil
		}
	}
	return "", errors.New("not on this machine: install the package pgbouncer, or set OUTBOX_PGBOUNCER to the program")
}

// poolerSettings writes the files that a pooler reads.
func poolerSettings(server *url.URL, port int, ignored []string) (file string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "outbox-pgbouncer-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	users := filepath.Join(dir, "users.txt")
	text := fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = transaction
default_pool_size = 1
max_client_conn = 200
ignore_startup_parameters = %s
`, server.Hostname(), server.Port(), port, users, strings.Join(ignored, ","))
	file = filepath.Join(dir, "pgbouncer.ini")
	err = errors.Join(
		os.WriteFile(file, []byte(text), 0o644),                                    //nolint:gosec // another user reads it
		os.WriteFile(users, []byte(`"`+server.User.Username()+`" ""`+"\n"), 0o644), //nolint:gosec // likewise
		os.Chmod(dir, fs.FileMode(0o755)),                                          //nolint:gosec // likewise
	)
	if err != nil {
		remove()
	}
	return file, remove, err
}

// awaitListener waits until a process takes connections.
func awaitListener(process *child.Process, address string) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), startTimeout, errors.New("timeout"))
	defer cancel()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ticker.C:
		case <-process.Done():
			return fmt.Errorf("it ended: %s", process.State())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
