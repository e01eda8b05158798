package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/child"
)

const (
	// startTimeout bounds initdb and each start: both take about a second on an
	// idle machine, and took half a minute on a busy one.
	startTimeout = 2 * time.Minute
	// stopTimeout bounds the stops: a client can block a fast shutdown for ever.
	stopTimeout = 30 * time.Second
	// tick is the pause between two looks at a server.
	tick = 10 * time.Millisecond
)

// Start starts the stopped server, on the same port, and returns once it takes
// connections.
func (c *Cluster) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("timeout"))
	defer cancel()
	log, err := os.OpenFile(c.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the server has a handle of its own

	command := exec.Command(c.Bin("postgres"), "-D", c.data())
	command.Stdout, command.Stderr = log, log
	c.prepare(command)
	if c.server, err = child.Start(command); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	if err := c.awaitReady(ctx); err != nil {
		return fmt.Errorf("start the server: %w; its log ends with:\n%s", err, c.logTail())
	}
	return nil
}

// awaitReady reads the server's own word in its pid file. A connection would
// prove less: another server may have taken the port.
func (c *Cluster) awaitReady(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for !c.ready() {
		select {
		case <-ticker.C:
		case <-c.server.Done():
			return fmt.Errorf("it ended: %s", c.server.State())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// ready reports whether line 8 of the pid file of this very server says so.
func (c *Cluster) ready() bool {
	text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	return len(lines) >= 8 && lines[0] == strconv.Itoa(c.PID()) && strings.TrimSpace(lines[7]) == "ready"
}

// The modes of a stop, in Postgres's words: smart waits for all clients to
// leave, fast disconnects them, immediate is a crash with notice.
var stopSignals = map[string]syscall.Signal{
	"smart": syscall.SIGTERM, "fast": syscall.SIGINT, "immediate": syscall.SIGQUIT,
}

// Stop stops the server in a mode of pg_ctl: smart, fast or immediate. It
// returns once the server has ended, or with an error when it has not after 30
// seconds. A stopped server may be stopped again.
func (c *Cluster) Stop(mode string) error {
	signal, known := stopSignals[mode]
	if !known {
		return fmt.Errorf("stop the server: no mode %q", mode)
	}
	if c.server == nil {
		return nil
	}
	if err := c.server.Signal(signal); err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	return c.awaitEnd()
}

func (c *Cluster) awaitEnd() error {
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-c.server.Done():
		return nil
	case <-timer.C:
		return fmt.Errorf("stop the server: still running after %v", stopTimeout)
	}
}

// Restart stops the server and starts it again on the same port.
func (c *Cluster) Restart(mode string) error {
	if err := c.Stop(mode); err != nil {
		return err
	}
	return c.Start(context.Background())
}

// Kill ends the server and all its processes at once, as if they had crashed
// together. It returns once they have ended: while one of them is there, the
// server cannot be started again.
func (c *Cluster) Kill() error {
	if c.server == nil || !c.server.Running() {
		return nil
	}
	// A stopped server makes no more processes, but it may be making one when the
	// signal comes. They are listed before the kill: afterwards they are nobody's
	// children.
	if err := c.server.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("kill the server: %w", err)
	}
	if err := await("still has not stopped", func() bool { return stopped(c.PID()) || !c.server.Running() }); err != nil {
		return err
	}
	orphans := children(c.PID())
	if err := c.server.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the server: %w", err)
	}
	for _, pid := range orphans {
		if child, err := os.FindProcess(pid); err == nil {
			_ = child.Kill() // it may have noticed and ended
		}
	}
	if err := c.awaitEnd(); err != nil {
		return err
	}
	// They are not our children: nobody tells us of their end.
	return await(fmt.Sprintf("some of its processes %v are still there", orphans), func() bool { return !slices.ContainsFunc(orphans, alive) })
}

// await waits for something that a kill brings about.
func await(otherwise string, holds func() bool) error {
	deadline := time.NewTimer(stopTimeout)
	defer deadline.Stop()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			return fmt.Errorf("kill the server: %s after %v", otherwise, stopTimeout)
		}
	}
	return nil
}

// PID is the process id of the server, also after its end; 0 before the first
// start.
func (c *Cluster) PID() int {
	if c.server == nil {
		return 0
	}
	return c.server.PID()
}

// logTail is the end of the server's log: enough to see why it does not start.
func (c *Cluster) logTail() string {
	text, err := os.ReadFile(c.LogFile())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

func (c *Cluster) logHas(text string) bool { return strings.Contains(c.logTail(), text) }
