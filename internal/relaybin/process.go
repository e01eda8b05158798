package relaybin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Process is a running or ended outbox-relay. Its methods are safe for
// concurrent use.
type Process struct {
	command *exec.Cmd
	stdout  buffer
	log     Log
	done    chan struct{} // closed once it has ended and all it wrote is here
}

// Start starts the program at path with exactly this environment.
func Start(path string, environment map[string]string, args ...string) (*Process, error) {
	p := &Process{command: exec.Command(path, args...), done: make(chan struct{})}
	p.command.Env = make([]string, 0, len(environment))
	for name, value := range environment {
		p.command.Env = append(p.command.Env, name+"="+value)
	}
	p.command.Stdout, p.command.Stderr = &p.stdout, &p.log
	p.command.SysProcAttr = attributes()

	started := make(chan error)
	go func() {
		// The program dies with the thread that started it, so the thread
		// stays as long as the program does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.command.Start()
		started <- err
		if err == nil {
			_ = p.command.Wait() // the state says how it ended
			p.log.End()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return p, nil
}

// PID is the process id.
func (p *Process) PID() int { return p.command.Process.Pid }

// Done is closed once the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends a signal; it is no error if the program has ended already.
func (p *Process) Signal(s os.Signal) error {
	err := p.command.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Kill ends the program at once, as kill -9 does, and returns once it is gone.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	if err == nil {
		<-p.done
	}
	return err
}

// Wait returns the exit code once the program has ended, and -1 if a signal
// ended it.
func (p *Process) Wait(ctx context.Context) (code int, err error) {
	select {
	case <-p.done:
		return p.command.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for the end of process %d: %w", p.PID(), context.Cause(ctx))
	}
}

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
