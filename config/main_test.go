package config_test

import (
	"os"
	"strings"
	"testing"
)

// TestMain takes a developer's own libpq settings out of the way: connection
// strings are completed from them.
func TestMain(m *testing.M) {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "PG") {
			_ = os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}
