package relaybin_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/internal/relaybin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun_ReturnsOutputAndExitCode(t *testing.T) {
	t.Parallel()
	p := relaybin.Run(t, nil, "version")
	p.AwaitExit(t, 0)
	if got := p.Stdout(); !strings.HasPrefix(got, "outbox-relay ") {
		t.Errorf("stdout is %q", got)
	}
	p = relaybin.Run(t, nil, "no-such-verb")
	p.AwaitExit(t, 2)
	if log := p.Log().Lines(); len(log) == 0 || !strings.Contains(log[0].Text, "no-such-verb") {
		t.Errorf("stderr is %v", log)
	}
}

// shell starts a program that is easier to lead than the relay.
func shell(t *testing.T, script string) *relaybin.Process {
	t.Helper()
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	p, err := relaybin.Start(path, map[string]string{"GREETING": "hello"}, "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

func TestProcess_AwaitFindsOldAndNewLines(t *testing.T) {
	t.Parallel()
	p := shell(t, `echo '{"level":"info","msg":"one","n":1}' >&2; echo plain $GREETING >&2; read never; `)
	line := p.AwaitLog(t, "one")
	if line.Level() != "info" || line.Fields["n"] != 1.0 {
		t.Errorf("line is %+v", line)
	}
	plain := func(l relaybin.Line) bool { return l.Fields == nil }
	line, number, err := p.Log().Await(t.Context(), 0, plain)
	if err != nil || line.Text != "plain hello" || number != 1 {
		t.Errorf("got line %d %q, %v", number, line.Text, err)
	}
}

func TestProcess_AwaitEndsWithTheProgram(t *testing.T) {
	t.Parallel()
	p := shell(t, "printf unfinished >&2; exit 3")
	_, _, err := p.Log().Await(t.Context(), 0, func(l relaybin.Line) bool { return l.Text == "something else" })
	if err == nil {
		t.Error("a line that never came was found")
	}
	p.AwaitExit(t, 3)
	if log := p.Log().Lines(); len(log) != 1 || log[0].Text != "unfinished" {
		t.Errorf("log is %v", log)
	}
}

func TestProcess_WaitsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	p := shell(t, "exec sleep 60")
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := p.Wait(ctx); !errors.Is(err, enough) {
		t.Errorf("Wait returned %v", err)
	}
	if _, _, err := p.Log().Await(ctx, 0, func(relaybin.Line) bool { return false }); !errors.Is(err, enough) {
		t.Errorf("Await returned %v", err)
	}
}

func TestProcess_Signals(t *testing.T) {
	t.Parallel()
	p := shell(t, "exec sleep 60")
	if code, err := p.Stop(t.Context()); code != -1 || err != nil {
		t.Errorf("Stop returned %d, %v", code, err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("a signal after the end: %v", err)
	}
	p = shell(t, "exec sleep 60")
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("a second kill: %v", err)
	}
}
