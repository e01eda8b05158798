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
)

// child is this program, started again with other arguments.
type child struct {
	pid  int
	line string // the first line that it printed, if that was asked for
	stop func()
}

// startChild starts this program with arguments and, with wantLine, waits for
// its first line.
func startChild(ctx context.Context, env map[string]string, wantLine bool, args ...string) (*child, error) {
	return startProgram(ctx, "", env, nil, wantLine, args...)
}

// startProgram is startChild for any program; an empty one is this. What it
// writes to its standard error goes to log, if that is not nil.
func startProgram(ctx context.Context, program string, env map[string]string, log io.Writer, wantLine bool, args ...string) (*child, error) {
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		program = self
	}
	ctx, cancel := context.WithCancel(ctx)
	command := exec.CommandContext(ctx, program, args...)
	command.Env = os.Environ()
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
	if err := command.Start(); err != nil {
		cancel()
		return nil, err
	}
	c := &child{pid: command.Process.Pid, stop: func() { cancel(); _ = command.Wait() }}
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
