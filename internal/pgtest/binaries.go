package pgtest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// binaries returns the folder with the programs of a server of the major
// version, or of any version if it is empty or "any", the word of hack/postgres.
func binaries(version string) (string, error) {
	if version == "any" {
		version = ""
	}
	if dir := os.Getenv("OUTBOX_PG_BIN"); dir != "" {
		return checkedBinaries(dir, version)
	}
	for _, dir := range candidates() {
		if found, err := serverVersion(dir); err == nil && (version == "" || version == found) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("find a Postgres server of version %s: not on this machine; run hack/postgres %[1]s", cmp.Or(version, "any"))
}

// checkedBinaries takes the folder that the environment names, if its version
// is the one that is asked for.
func checkedBinaries(dir, version string) (string, error) {
	found, err := serverVersion(dir)
	if err != nil {
		return "", fmt.Errorf("OUTBOX_PG_BIN: %w", err)
	}
	if version != "" && version != found {
		return "", fmt.Errorf("OUTBOX_PG_BIN: %s is a Postgres %s, wanted %s: run hack/postgres %[3]s", dir, found, version)
	}
	return dir, nil
}

// candidates lists the folders where a server may be, the newest version of
// each place first.
func candidates() []string {
	dirs := newestFirst("/usr/lib/postgresql/*/bin")
	if root, err := moduleRoot(); err == nil {
		dirs = append(dirs, newestFirst(filepath.Join(root, "build", "postgres", "*", "bin"))...)
	}
	if program, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(program))
	}
	return dirs
}

// newestFirst expands a pattern whose star is a major version.
func newestFirst(pattern string) []string {
	dirs, _ := filepath.Glob(pattern) // fails on a malformed pattern only
	slices.SortFunc(dirs, func(a, b string) int { return cmp.Compare(major(b), major(a)) })
	return dirs
}

func major(bin string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	return n
}

// moduleRoot is the nearest folder above the working directory with a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = parent
	}
}

var versionText = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// serverVersion is the major version of the server in the folder.
func serverVersion(dir string) (string, error) {
	command := exec.Command(filepath.Join(dir, "postgres"), "--version")
	command.Env = environment(dir)
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("ask for the version of %s: %w", command.Path, err)
	}
	found := versionText.FindSubmatch(out)
	if found == nil {
		return "", fmt.Errorf("ask for the version of %s: unexpected answer %q", command.Path, out)
	}
	return string(found[1]), nil
}

// environment is what the programs of the folder run with. The settings of a
// developer's own libpq do not reach them; a packaged server finds its libraries
// beside itself.
func environment(bin string) []string {
	return []string{
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"),
		"LC_ALL=C",
		"TZ=UTC",
		"LD_LIBRARY_PATH=" + filepath.Join(bin, "..", "lib"),
	}
}
