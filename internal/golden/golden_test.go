package golden_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/golden"
)

// judge takes what Compare says about a test.
type judge struct {
	testing.TB
	said []string
}

func (j *judge) Helper() {}

func (j *judge) Errorf(_ string, args ...any) { j.said = append(j.said, args[len(args)-1].(string)) }

func TestCompare(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "verbs.txt")
	if err := os.WriteFile(path, []byte("redrive\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, path, "redrive\n")
	j := &judge{TB: t}
	golden.Compare(j, path, "replay\n")
	if len(j.said) != 1 || !strings.Contains(j.said[0], "redrive") || !strings.Contains(j.said[0], "replay") {
		t.Errorf("of another text it says %q", j.said)
	}
}
