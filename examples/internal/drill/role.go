package drill

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/outbox-relay/outbox-relay/internal/relaybin"
)

// roleVariable says to this program, started again, which role it has.
const roleVariable = "DRILL_ROLE"

// Child plays a role if this process was started for one, and returns only if it
// was not. [Main] calls it; a test calls it in TestMain.
func Child(d Drill) {
	name := os.Getenv(roleVariable)
	if name == "" {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := playRole(ctx, d, name)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func playRole(ctx context.Context, d Drill, name string) error {
	role, ok := d.Roles[name]
	if !ok {
		return fmt.Errorf("the drill %s has no role %q", d.Name, name)
	}
	if err := role(ctx, os.Getenv); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Spawn starts a role in a process of its own, with the application's settings
// and those given. It is killed at the drill's end if it is still there.
func (s *Stage) Spawn(role string, extra map[string]string) *relaybin.Process {
	s.Helper()
	program, err := os.Executable()
	s.Must(err)
	env := s.Env()
	maps.Copy(env, extra)
	env[roleVariable], env["GORACE"] = role, noPause
	p, err := relaybin.Start(program, env)
	s.Must(err)
	s.Cleanup(func() {
		if err := p.Kill(); err != nil {
			s.Errorf("kill the %s: %v", role, err)
		}
		if s.Failed() {
			s.Logf("the %s, process %d, wrote:\n%s", role, p.PID(), p.Log().Text())
		}
	})
	return p
}

// Stop stops a process as a service manager does, and returns its exit code.
func (s *Stage) Stop(p *relaybin.Process) (code int) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, Patience)
	defer cancel()
	code, err := p.Stop(ctx)
	s.Must(err)
	return code
}

// AwaitLine waits for the first line of a process's log that contains a text, and
// returns it.
func (s *Stage) AwaitLine(p *relaybin.Process, text string) (line string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, Patience)
	defer cancel()
	found, _, err := p.Log().Await(ctx, 0, func(l relaybin.Line) bool { return strings.Contains(l.Text, text) })
	if err != nil {
		s.Fatalf("wait for a line with %q: %v", text, err)
	}
	return found.Text
}
