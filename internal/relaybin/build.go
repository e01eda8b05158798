package relaybin

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

const program = "cmd/outbox-relay"

// What this process has built.
var (
	built = sync.OnceValues(func() (string, error) { return build(raceEnabled) })
	plain = sync.OnceValues(func() (string, error) { return build(false) })
)

// Build returns the path of the built program. The first call builds it, with
// the race detector if the caller has it.
func Build() (string, error) { return built() }

// BuildPlain is [Build] without the race detector, which takes several times
// the memory: for tests that measure the program.
func BuildPlain() (string, error) {
	if !raceEnabled {
		return built()
	}
	return plain()
}

// build writes the program below build/ in the module's root. Several test
// binaries may do so at the same time, while others run the program: each
// builds a file of its own and moves it into place.
//
// The test cache remembers the time of a program that a test runs. One that is
// built again but is the same stays where it is, or no test that runs it would
// ever be cached.
func build(race bool) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	if err := noteSources(root); err != nil {
		return "", err
	}
	name, flags := "outbox-relay", []string{"build", "-buildvcs=false"}
	if race {
		name, flags = name+"-race", append(flags, "-race")
	}
	path := filepath.Join(root, "build", "relaybin", name)
	own := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer func() { _ = os.RemoveAll(own) }()
	if _, err := goTool(root, append(flags, "-o", own+"/", "./"+program)...); err != nil {
		return "", err
	}
	fresh := filepath.Join(own, "outbox-relay")
	if same(fresh, path) {
		return path, nil
	}
	return path, os.Rename(fresh, path)
}

// same reports whether two files can be read and hold the same.
func same(a, b string) bool {
	left, leftErr := os.ReadFile(a)
	right, rightErr := os.ReadFile(b)
	return leftErr == nil && rightErr == nil && bytes.Equal(left, right)
}

// noteSources looks at every file that goes into the program. The test cache
// does not see what a subprocess reads: without this, a cached "ok" would
// outlive a change of the program.
func noteSources(root string) error {
	const format = `{{with .Module}}{{if .Main}}{{$.Dir}}{{range $.EmbedFiles}}
{{$.Dir}}/{{.}}{{end}}{{end}}{{end}}`
	out, err := goTool(root, "list", "-deps", "-f", format, "./"+program)
	if err != nil {
		return err
	}
	for path := range strings.Lines(string(out)) {
		// Of a folder the cache remembers the names, sizes and times.
		f, err := os.Open(strings.TrimSpace(path))
		if err != nil {
			return err
		}
		_ = f.Close()
	}
	return nil
}

func goTool(root string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	command := exec.Command("go", args...)
	command.Dir, command.Stderr = root, &stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, &stderr)
	}
	return out, nil
}

// moduleRoot is the nearest folder above the working directory with a go.mod.
func moduleRoot() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder, nil
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "", errors.New("no go.mod above the working directory")
		}
		folder = parent
	}
}
