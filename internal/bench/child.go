package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/child"
)

// program is a program that runs beside this one, and ends with it.
type program struct {
	pid  int
	line string // the first line that it printed, if that was asked for
	stop func()
}

// startChild starts this program with arguments and, with wantLine, waits for
// its first line.
func startChild(ctx context.Context, env map[string]string, wantLine bool, args ...string) (*program, error) {
	return startProgram(ctx, "", env, nil, wantLine, args...)
}

// startProgram is startChild for the program at a path; empty is this one. What it
// writes to its standard error goes to log, if that is not nil.
func startProgram(ctx context.Context, path string, env map[string]string, log io.Writer, wantLine bool, args ...string) (*program, error) {
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		path = self
	}
	ctx, cancel := context.WithCancel(ctx)
	command := exec.CommandContext(ctx, path, args...)
	// A relay that is measured takes no port that another one has.
	command.Env = append(os.Environ(), "RELAY_ADMIN_LISTEN=off")
	command.Stderr = log
	for name, value := range env {
		command.Env = append(command.Env, name+"="+value)
	}
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	output, err := command.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	process, err := child.Start(command)
	if err != nil {
		cancel()
		return nil, err
	}
	c := &program{pid: process.PID(), stop: func() { cancel(); <-process.Done() }}
	if !wantLine {
		return c, nil
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("%s: no line of output: %w", strings.Join(args, " "), err)
	}
	c.line = strings.TrimSpace(line)
	return c, nil
}
