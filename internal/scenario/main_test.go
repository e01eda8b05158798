package scenario_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// TestMain runs the tests, or one of the processes that a test kills.
func TestMain(m *testing.M) {
	if os.Getenv(claimDatabase) == "" {
		pgtest.Main(m)
	}
	if err := handleDeliveries(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
