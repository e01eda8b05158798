package module_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/outbox-relay/outbox-relay"

// mayImport is the map of this module: each folder, and which other folders it
// may import. Everything below internal may be imported by all, as far as the
// map does not say otherwise; cmd, examples and tests may import what they like.
// A new folder has to be entered here.
var mayImport = map[string][]string{
	"outbox":                {},
	"outbox/consumer":       {"outbox"},
	"schema":                {},
	"cdc":                   {"outbox"},
	"relay":                 {"outbox"},
	"relay/infrai":          {"outbox", "relay"},
	"relay/infrai/emulator": {},
	"relay/poll":            {"outbox"},
	"relay/admin":           {"relay"},
	"config":                {"outbox", "schema", "cdc", "relay", "relay/infrai", "relay/poll", "relay/admin"},
	"internal/secret":       {},
}

// light are the folders that not even import what is internal.
var light = []string{"outbox", "outbox/consumer", "internal/secret"}

// free are the folders that join the others.
var free = []string{"cmd", "examples", "internal"}

func TestImportDirections(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for name, imports := range sources(t) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		folder := path.Dir(name)
		seen[folder] = true
		allowed, listed := mayImport[folder]
		if !listed {
			if top, _, _ := strings.Cut(folder, "/"); !slices.Contains(free, top) {
				t.Errorf("%s: the folder is not on the map", name)
			}
			continue
		}
		for _, imported := range imports {
			other, ours := strings.CutPrefix(imported, module+"/")
			internal := strings.HasPrefix(other, "internal/") && !slices.Contains(light, folder)
			if ours && !internal && !slices.Contains(allowed, other) {
				t.Errorf("%s imports %s", name, other)
			}
		}
	}
	if !seen["outbox"] || !seen["relay"] {
		t.Error("the test looked at the wrong folders")
	}
}

// TestDependenciesAreExplained compares what is imported from other modules with
// the list in CONTRIBUTING.md.
func TestDependenciesAreExplained(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "## Dependencies")
	var explained []string
	for _, quoted := range regexp.MustCompile("`[^`]+/[^`]+`").FindAllString(list, -1) {
		explained = append(explained, strings.Trim(quoted, "`"))
	}
	used := make(map[string]bool)
	for name, imports := range sources(t) {
		for _, imported := range imports {
			host, _, _ := strings.Cut(imported, "/")
			if !strings.Contains(host, ".") || imported == module || strings.HasPrefix(imported, module+"/") {
				continue // the standard library, or ours
			}
			imported = strings.TrimPrefix(imported, "github.com/")
			i := slices.IndexFunc(explained, func(e string) bool { return imported == e || strings.HasPrefix(imported, e+"/") })
			if i < 0 {
				t.Errorf("%s imports %s, which CONTRIBUTING.md does not explain", name, imported)
				continue
			}
			used[explained[i]] = true
		}
	}
	for _, e := range explained {
		if strings.Contains(e, "/") && !used[e] && !strings.HasPrefix(e, "x/") {
			t.Errorf("CONTRIBUTING.md explains %s, which nothing imports", e)
		}
	}
}

// sources lists what each Go file of the module imports.
func sources(t *testing.T) map[string][]string {
	t.Helper()
	files := make(map[string][]string)
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && name != "." || name == "bin" || name == "build"):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go"):
			return nil
		}
		imports, err := importsOf(name)
		files[name] = imports
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// importsOf lists what a file imports.
func importsOf(name string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var imports []string
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		imports = append(imports, imported)
	}
	return imports, nil
}
