// Package deploy_test looks at the files of this folder with the tools that they
// are for, as far as these run anywhere, and reads the others as they would be
// read.
package deploy_test

import (
	"os"
	"strings"
	"testing"
)

// read returns a file of this folder.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// expectVariable reports a variable that is no setting of the relay. The page is
// generated from the settings.
func expectVariable(t *testing.T, where, name string) {
	t.Helper()
	if !strings.Contains(read(t, "../docs/configuration.md"), "\n| `"+name+"` |") {
		t.Errorf("%s sets %s, which is not in docs/configuration.md", where, name)
	}
}
