package child_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/internal/child"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// parent makes this test binary a program that starts a child, tells its process
// id and waits.
const parent = "CHILD_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parent) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	p, err := child.Start(shell("sleep 60"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, p.PID())
	<-p.Done()
}

func shell(script string) *exec.Cmd {
	return exec.CommandContext(context.Background(), "sh", "-c", "exec "+script)
}

func start(t *testing.T, script string, ended ...func()) *child.Process {
	t.Helper()
	p, err := child.Start(shell(script), ended...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

func TestProcess_EndsByItself(t *testing.T) {
	t.Parallel()
	told := false
	p := start(t, "sh -c 'exit 3'", func() { told = true })
	if code, err := p.Wait(t.Context()); code != 3 || err != nil {
		t.Errorf("got %d, %v", code, err)
	}
	if !told || p.Running() || p.State() == nil {
		t.Errorf("after the end: told %v, running %v, state %v", told, p.Running(), p.State())
	}
	if err := errors.Join(p.Signal(syscall.SIGTERM), p.Kill()); err != nil {
		t.Errorf("a signal to one that has ended: %v", err)
	}
}

func TestProcess_Kill(t *testing.T) {
	t.Parallel()
	p := start(t, "sleep 60")
	if !p.Running() || p.State() != nil {
		t.Error("not running")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := p.Wait(ctx); !errors.Is(err, enough) {
		t.Errorf("the wait ended with %v", err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if code, err := p.Wait(t.Context()); code != -1 || err != nil {
		t.Errorf("got %d, %v", code, err)
	}
}

func TestStart_NoSuchProgram(t *testing.T) {
	t.Parallel()
	if _, err := child.Start(exec.CommandContext(t.Context(), "/no/such/program")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// A parent that is killed has no time to end its children.
func TestStart_EndsWithItsParent(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), parent+"=yes")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatalf("read the child's pid: %v", err)
	}
	_ = command.Process.Kill()
	_ = command.Wait()
	pgtest.Eventually(t, time.Minute, func() error {
		if gone(pid) {
			return nil
		}
		return errors.New("the child survived")
	})
}
