package pgtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"
)

// TB is the part of testing.TB that this package needs. It keeps package
// testing out of the programs that start a cluster.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Failed() bool
}

// shared is the cluster of this test binary.
var shared struct {
	mu      sync.Mutex
	cluster *Cluster
	err     error
	tried   bool
}

// Main is the body of TestMain: it runs the tests, ends the shared cluster, and
// then, if the tests passed, makes the last checks (such as goleak.Find). It
// does not return.
func Main(m interface{ Run() int }, checks ...func() error) {
	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, "close the shared cluster:", err)
		code = max(code, 1)
	}
	for _, check := range checks {
		if code != 0 {
			break
		}
		if err := check(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func closeShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil {
		return nil
	}
	return shared.cluster.Close()
}

// Shared is the cluster that all tests of this binary use, started by the first
// call. [Main] ends it. Tests do not stop it and leave no roles behind. A slot is
// only made once every transaction that is open in any database of the cluster
// has ended, so a test that keeps one open slows the others down.
func Shared(t TB) *Cluster {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.tried {
		shared.tried = true
		shared.cluster, shared.err = Start(context.Background(), Options{})
	}
	if shared.err != nil {
		t.Fatalf("start the shared cluster: %v", shared.err)
	}
	return shared.cluster
}

// New is a cluster of the test's own, which it may stop, kill and restart. It is
// closed at the test's end; the log of a failed test's server is printed.
func New(t TB, options ...Options) *Cluster {
	t.Helper()
	var chosen Options
	if len(options) > 0 {
		chosen = options[0]
	}
	c, err := Start(context.Background(), chosen)
	return keep(t, "cluster", c, err)
}

// keep closes a cluster at the test's end, and prints its log if the test failed.
func keep(t TB, what string, c *Cluster, err error) *Cluster {
	t.Helper()
	if err != nil {
		t.Fatalf("start a %s: %v", what, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of the %s's server ends with:\n%s", what, c.logTail())
		}
		if err := c.Close(); err != nil {
			t.Errorf("close the %s: %v", what, err)
		}
	})
	return c
}

// Eventually calls check until it returns nil, and fails the test with its last
// error after the timeout.
func Eventually(t TB, timeout time.Duration, check func() error) {
	t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %v", timeout, err)
		}
	}
}
