package pgtest

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is a running server.
type process struct {
	command *exec.Cmd
	done    chan struct{} // closed once the server has ended
}

// spawn starts the command and waits for it in the background. Both happen on
// one locked thread, because the server is told to die with the thread that
// started it.
func spawn(command *exec.Cmd) (*process, error) {
	p := &process{command: command, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait() // how it ended stands in command.ProcessState
			close(p.done)
		}
	}()
	return p, <-started
}

// signal sends a signal; it is no error if the server has ended already.
func (p *process) signal(s syscall.Signal) error {
	err := p.command.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}
