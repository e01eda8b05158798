package relaybin

import (
	"context"
	"time"
)

// TB is the part of testing.TB that this package needs.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
	Failed() bool
}

// patience bounds the waits of tests. It is long, because the program may share
// two cores with other tests and have the race detector, and a slot is made only
// when the transactions of all other tests have ended; no test waits for it when
// all is well.
const patience = 2 * time.Minute

// Run builds the program and starts it. It is killed at the test's end; the log
// of a failed test is printed.
func Run(t TB, environment map[string]string, args ...string) *Process {
	t.Helper()
	path, err := Build()
	if err != nil {
		t.Fatalf("build the program: %v", err)
	}
	p, err := Start(path, environment, args...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Errorf("kill process %d: %v", p.PID(), err)
		}
		if t.Failed() {
			t.Logf("process %d wrote:\n%s", p.PID(), p.log.Text())
		}
	})
	return p
}

// AwaitLog waits for the first line with this message, and fails the test when
// the program ends before or takes too long.
func (p *Process) AwaitLog(t TB, message string) Line {
	t.Helper()
	return p.log.AwaitMessage(t, message)
}

// AwaitMessage waits for the first line with this message, and fails the test
// when the log ends before or that takes too long.
func (l *Log) AwaitMessage(t TB, message string) Line {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	line, _, err := l.Await(ctx, 0, func(l Line) bool { return l.Message() == message })
	if err != nil {
		t.Fatalf("%q: %v", message, err)
	}
	return line
}

// AwaitExit waits for the end of the program and fails the test when the exit
// code is another one.
func (p *Process) AwaitExit(t TB, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	code, err := p.Wait(ctx)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if code != want {
		t.Fatalf("exit code is %d, want %d", code, want)
	}
}
