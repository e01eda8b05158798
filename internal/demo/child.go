package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// child is this program, started again with another verb. What it writes goes
// to a file.
type child struct {
	name    string
	command *exec.Cmd
	log     string        // path
	done    chan struct{} // closed once it has ended
}

// startChild starts the program with exactly this environment. The log is named
// after the child.
func startChild(folder, program, name string, env []string, args ...string) (*child, error) {
	c := &child{name: name, log: filepath.Join(folder, name+".log"), done: make(chan struct{})}
	log, err := os.Create(c.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()         // the child has it
	c.command = exec.Command(program, args...) //nolint:noctx // its end is decided by stop and kill
	c.command.Env, c.command.Stdout, c.command.Stderr = env, log, log
	c.command.SysProcAttr = attributes()

	started := make(chan error)
	go func() {
		// The child dies with the thread that started it, so the thread stays
		// as long as the child does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.command.Start()
		started <- err
		if err == nil {
			_ = c.command.Wait() // the state says how it ended
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

func (c *child) pid() int { return c.command.Process.Pid }

// exitCode is the code of a child that has ended, and -1 if a signal ended it.
func (c *child) exitCode() int { return c.command.ProcessState.ExitCode() }

// kill ends the child as kill -9 does and returns once it is gone.
func (c *child) kill() {
	_ = c.command.Process.Kill() // it may have ended
	<-c.done
}

// stop asks the child to stop and returns its exit code.
func (c *child) stop(ctx context.Context) (code int, err error) {
	_ = c.command.Process.Signal(syscall.SIGTERM) // it may have ended
	return c.wait(ctx)
}

func (c *child) wait(ctx context.Context) (code int, err error) {
	select {
	case <-c.done:
		return c.exitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for the end of %s: %w", c.name, context.Cause(ctx))
	}
}

// ended says that the child ended although nobody asked it to.
func (c *child) ended() error {
	return fmt.Errorf("%s ended by itself with exit code %d", c.name, c.exitCode())
}

// await waits for a line of the log with this message and returns its fields.
func (c *child) await(ctx context.Context, message string) (map[string]any, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		fields, err := c.find(message)
		if fields != nil || err != nil {
			return fields, err
		}
		select {
		case <-tick.C:
		case <-c.done:
			return nil, c.ended()
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s: %w", c.name, context.Cause(ctx))
		}
	}
}

func (c *child) find(message string) (map[string]any, error) {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	for lines.Scan() {
		var fields map[string]any
		if json.Unmarshal(lines.Bytes(), &fields) == nil && fields["msg"] == message {
			return fields, nil
		}
	}
	return nil, nil
}
