// Package child runs programs that end with this process, however it ends: a
// test binary or a demo that is killed leaves nothing behind. Elsewhere than on
// Linux they may outlive it.
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// Process is a running or ended program. Its methods are safe for concurrent
// use.
type Process struct {
	command *exec.Cmd
	done    chan struct{} // closed once it has ended
}

// Start starts a command that has not been started. Once the program has ended
// and all that it wrote is where the command says, the functions are called, and
// then Done is closed.
//
// The program is killed when this process dies, unless the command asks for
// another signal.
func Start(command *exec.Cmd, ended ...func()) (*Process, error) {
	endWithParent(command)
	p := &Process{command: command, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The program dies with the thread that started it, so the thread stays
		// as long as the program does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait() // the state says how it ended
			for _, f := range ended {
				f()
			}
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", command.Path, err)
	}
	return p, nil
}

// PID is the process id.
func (p *Process) PID() int { return p.command.Process.Pid }

// Done is closed once the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the program has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

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
	err := p.Signal(os.Kill)
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

// State is how the program ended; nil while it runs.
func (p *Process) State() *os.ProcessState {
	if p.Running() {
		return nil
	}
	return p.command.ProcessState
}
