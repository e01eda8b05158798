package module_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/outbox-relay/outbox-relay/"

// mayImport is the map of this module: each folder, and which other folders it
// may import. Everything below internal may be imported by all, as far as the
// map does not say otherwise; cmd, examples and tests may import what they like.
// A new folder has to be entered here.
var mayImport = map[string][]string{
	"outbox":                {},
	"schema":                {},
	"cdc":                   {"outbox"},
	"relay":                 {"outbox"},
	"relay/infrai":          {"outbox", "relay"},
	"relay/infrai/emulator": {},
	"relay/admin":           {"relay"},
	"config":                {"outbox", "schema", "cdc", "relay", "relay/infrai", "relay/admin"},
	"internal/secret":       {},
}

// light are the folders that not even import what is internal.
var light = []string{"outbox", "internal/secret"}

// free are the folders that join the others.
var free = []string{"cmd", "examples", "internal"}

func TestImportDirections(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && name != "." || name == "bin" || name == "build"):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		folder := path.Dir(name)
		seen[folder] = true
		allowed, listed := mayImport[folder]
		if !listed {
			if top, _, _ := strings.Cut(folder, "/"); !slices.Contains(free, top) {
				t.Errorf("%s: the folder is not on the map", name)
			}
			return nil
		}
		imports, err := importsOf(name)
		for _, other := range imports {
			internal := strings.HasPrefix(other, "internal/") && !slices.Contains(light, folder)
			if !internal && !slices.Contains(allowed, other) {
				t.Errorf("%s imports %s", name, other)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !seen["outbox"] || !seen["relay"] {
		t.Error("the test looked at the wrong folders")
	}
}

// importsOf lists the folders of this module that a file imports.
func importsOf(name string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var folders []string
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if folder, ours := strings.CutPrefix(imported, module); ours {
			folders = append(folders, folder)
		}
	}
	return folders, nil
}
