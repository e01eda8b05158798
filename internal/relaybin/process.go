package relaybin

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"sync"
	"syscall"

	"github.com/outbox-relay/outbox-relay/internal/child"
)

// Process is a running or ended outbox-relay. Its methods are safe for
// concurrent use.
type Process struct {
	*child.Process

	stdout buffer
	log    Log
}

// Start starts the program at path with exactly this environment, except that the
// admin server takes a free port if the environment does not say which: many
// relays run side by side in tests.
func Start(path string, environment map[string]string, args ...string) (*Process, error) {
	p := new(Process)
	command := exec.Command(path, args...)
	command.Env = make([]string, 0, len(environment)+1)
	if _, set := environment[adminListen]; !set {
		command.Env = append(command.Env, adminListen+"=127.0.0.1:0")
	}
	for name, value := range environment {
		command.Env = append(command.Env, name+"="+value)
	}
	command.Stdout, command.Stderr = &p.stdout, &p.log
	var err error
	if p.Process, err = child.Start(command, p.log.End); err != nil {
		return nil, err
	}
	return p, nil
}

const adminListen = "RELAY_ADMIN_LISTEN"

// Stop asks the program to stop, as a service manager does, and returns its
// exit code.
func (p *Process) Stop(ctx context.Context) (code int, err error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	return p.Wait(ctx)
}

// Stdout is what the program has written to its standard output.
func (p *Process) Stdout() string { return p.stdout.String() }

// Log is what the program writes to its standard error.
func (p *Process) Log() *Log { return &p.log }

// buffer collects output while others read it.
type buffer struct {
	mu    sync.Mutex
	bytes bytes.Buffer
}

var _ io.Writer = (*buffer)(nil)

func (b *buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.Write(text)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.String()
}
