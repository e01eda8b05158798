package scenario_test

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// TestMain runs the tests, or one of the processes that a test kills.
func TestMain(m *testing.M) {
	if os.Getenv(claimDatabase) == "" {
		fourAtATime()
		pgtest.Main(m)
	}
	if err := handleDeliveries(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fourAtATime lets four tests run at a time on a machine with fewer processors, unless
// somebody asks for another number: most of the time they wait, for servers, processes
// and timeouts.
func fourAtATime() {
	flag.Parse()
	parallel := flag.Lookup("test.parallel")
	if n, err := strconv.Atoi(parallel.DefValue); err != nil || n >= 4 || parallel.Value.String() != parallel.DefValue {
		return
	}
	_ = parallel.Value.Set("4")
}
