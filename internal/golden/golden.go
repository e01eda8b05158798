// Package golden compares what is written for people and programs with files that
// say how it is to be. It is for tests, which get a flag by it: with -update they
// write the files instead, and a change of what is written becomes a change that
// somebody reads.
package golden

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files before they are compared")

// Compare fails the test if got is not what the file says, whose path starts at
// the folder of the test's package.
func Compare(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what the code writes; with -update the test makes it so (-file +code):\n%s", path, diff)
	}
}
