package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/child"
)

// process is this program, started again with another verb. What it writes goes
// to a file.
type process struct {
	*child.Process

	name string
	log  string // path
}

// startProcess starts the program with exactly this environment. The log is
// named after the process.
func startProcess(folder, program, name string, env []string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(folder, name+".log")}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()        // the child has it
	command := exec.Command(program, args...) //nolint:noctx // its end is decided by stop and kill
	command.Env, command.Stdout, command.Stderr = env, log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the demo ends its children itself, not a terminal's Ctrl-C
	if p.Process, err = child.Start(command); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// kill ends the process as kill -9 does and returns once it is gone.
func (p *process) kill() { _ = p.Kill() } // it may have ended

// stop asks the process to stop and returns its exit code.
func (p *process) stop(ctx context.Context) (code int, err error) {
	_ = p.Signal(syscall.SIGTERM) // it may have ended
	return p.wait(ctx)
}

func (p *process) wait(ctx context.Context) (code int, err error) {
	if code, err = p.Wait(ctx); err != nil {
		err = fmt.Errorf("%s: %w", p.name, err)
	}
	return code, err
}

// ended says that the process ended although nobody asked it to.
func (p *process) ended() error {
	return fmt.Errorf("%s ended by itself: %s", p.name, p.State())
}

// await waits for a line of the log with this message and returns its fields.
func (p *process) await(ctx context.Context, message string) (map[string]any, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		fields, err := p.find(message)
		if fields != nil || err != nil {
			return fields, err
		}
		select {
		case <-tick.C:
		case <-p.Done():
			return nil, p.ended()
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s: %w", p.name, context.Cause(ctx))
		}
	}
}

func (p *process) find(message string) (map[string]any, error) {
	text, err := os.ReadFile(p.log)
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
