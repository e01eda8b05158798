package drill

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// Drill is one drill.
type Drill struct {
	// Name is the name of the example's folder.
	Name string
	// Invariant is what the drill is about, in one line.
	Invariant string
	// Tables is the SQL that makes the application's tables.
	Tables string
	// Queues are made in this order, each with a dead letter queue if it names
	// one.
	Queues []Queue
	// Relay are settings of the relay beyond those that it needs, such as
	// RELAY_RETRY_MAX.
	Relay map[string]string
	// Play is what happens.
	Play func(*Stage)
	// Roles are the parts that run in processes of their own, by name.
	Roles map[string]Role
}

// Role is a part of the application in a process of its own. Its environment has
// DATABASE_URL, INFRAI_BASE_URL and INFRAI_API_KEY, and what [Stage.Spawn] adds.
type Role func(ctx context.Context, env func(string) string) error

// TB is what a drill reports to: a *testing.T, or a program's own.
type TB = pgtest.TB

// Main plays a drill as a program, and does not return.
func Main(d Drill) {
	Child(d)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, d, os.Stdout)
	stop()
	os.Exit(code)
}

// Test plays a drill as a test. What it says is in the test's log.
func Test(t TB, d Drill) {
	t.Helper()
	d.play(newStage(context.Background(), t, d, func(line string) { t.Logf("%s", line) }))
}

// run plays a drill and returns the exit code.
func run(ctx context.Context, d Drill, out io.Writer) int {
	p := &program{out: out}
	p.play(func() { d.play(newStage(ctx, p, d, func(line string) { fmt.Fprintln(out, line) })) })
	if p.Failed() {
		fmt.Fprintf(out, "FAILED: %s: %s\n", d.Name, d.Invariant)
		return 1
	}
	fmt.Fprintf(out, "\nholds: %s: %s\n", d.Name, d.Invariant)
	return 0
}

// play builds the stage and plays on it.
func (d Drill) play(s *Stage) {
	s.Helper()
	s.say("%s: %s", d.Name, d.Invariant)
	s.build()
	d.Play(s)
	if s.proofs == 0 {
		s.Fatalf("the drill has proved nothing")
	}
}
