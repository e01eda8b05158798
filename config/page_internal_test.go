package config

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/golden"
)

//go:generate go test . -run ^TestPage$ -update

const (
	page   = "../docs/configuration.md"
	module = "github.com/outbox-relay/outbox-relay"
)

// TestPage compares docs/configuration.md with the structs that it describes.
func TestPage(t *testing.T) {
	t.Parallel()
	want := writePage(t)
	golden.Compare(t, page, string(want))
}

const intro = `# Configuration

<!-- Generated from the Config structs; change their comments, then run: make generate -->

All settings are environment variables; there is no file and no flag for them. ` + "`outbox-relay`" + ` reads them once, at its
start, and reports everything that is wrong at once, with the variable's name (exit code 2). Two have no default and are
needed: ` + "`DATABASE_URL`" + ` and the API key, ` + "`INFRAI_API_KEY`" + ` or ` + "`INFRAI_API_KEY_FILE`" + `.

- A variable that is set but empty counts as not set.
- Durations are written as ` + "`500ms`, `10s`, `5m`, `24h`" + `.
- Secrets are never printed, also not when they cannot be parsed.
- A variable that begins with ` + "`RELAY_`" + ` and is none of these is reported, with the nearest name.
- Connection strings understand what libpq's do, with libpq's ` + "`PG*`" + ` variables and its password file for what they leave
  out. TLS is required to any other machine, see ` + "`RELAY_ALLOW_INSECURE_TLS`" + `.
`

// sections are the parts of the page, by the package that owns the struct.
var sections = map[string]string{
	"config.Config":   "Connections",
	"config.Log":      "Log",
	"cdc.Config":      "Reading the WAL",
	"poll.Config":     "Reading the table",
	"relay.Config":    "Dispatching",
	"admin.Config":    "Health",
	"infrai.Config":   "The Infrai queue",
	"tracing.Config":  "Traces",
	"verify.Settings": "The daily check",
}

func writePage(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(intro)
	var owner reflect.Type
	var comments map[string]string
	list := variables(new(Config))
	slices.SortStableFunc(list, func(a, b variable) int { return order(list, a) - order(list, b) })
	for _, v := range list {
		if v.owner != owner {
			owner = v.owner
			comments = fieldComments(t, owner)
			title, ok := sections[owner.String()]
			if !ok {
				t.Errorf("%s has no section on the page", owner)
			}
			fmt.Fprintf(&b, "\n## %s\n\n| variable | default | value | what it does |\n| --- | --- | --- | --- |\n", title)
		}
		fallback := "none"
		if text := v.fallback(); text != "" {
			fallback = "`" + text + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", v.name, fallback, shortKind(v), comment(t, comments, list, v))
	}
	return b.Bytes()
}

// order keeps the variables of one struct together, in the order in which the
// structs come.
func order(list []variable, v variable) int {
	return slices.IndexFunc(list, func(other variable) bool { return other.owner == v.owner })
}

func shortKind(v variable) string {
	kind, _, _ := strings.Cut(v.kind(), " such as")
	switch {
	case strings.HasSuffix(v.name, "_BYTES"):
		kind += ", bytes"
	case v.secret():
		kind = "secret text"
	}
	return strings.TrimPrefix(kind, "a ")
}

var link = regexp.MustCompile(`\[([A-Za-z.*]+)\]`)

// comment is the doc comment of the variable's field in its source file, with
// variables in the place of the fields' names.
func comment(t *testing.T, comments map[string]string, list []variable, v variable) string {
	t.Helper()
	text := comments[v.field.Name]
	if text == "" {
		t.Errorf("%s.%s has no comment", v.owner, v.field.Name)
	}
	text = link.ReplaceAllString(strings.Join(strings.Fields(text), " "), "$1")
	for _, other := range list {
		if other.owner == v.owner {
			text = regexp.MustCompile(`\b`+other.field.Name+`\b`).ReplaceAllString(text, "`"+other.name+"`")
		}
	}
	return strings.ReplaceAll(withoutSubject(text, v.name), "|", `\|`)
}

// withoutSubject turns "NAME is the ..." into "The ...": the row names the
// variable already.
func withoutSubject(text, name string) string {
	rest, ok := strings.CutPrefix(text, "`"+name+"` ")
	if !ok || strings.HasPrefix(rest, "and ") {
		return text
	}
	rest = strings.TrimPrefix(rest, "is ")
	return strings.ToUpper(rest[:1]) + rest[1:]
}

// fieldComments parses the source of the struct. A field that stands right below
// another one without a comment of its own shares the other's.
func fieldComments(t *testing.T, owner reflect.Type) map[string]string {
	t.Helper()
	comments := make(map[string]string)
	doc := ""
	for _, f := range structType(t, owner).Fields.List {
		if f.Doc != nil {
			doc = f.Doc.Text()
		}
		for _, name := range f.Names {
			comments[name.Name] = doc
		}
	}
	return comments
}

// structType finds the struct in the files of its package.
func structType(t *testing.T, owner reflect.Type) *ast.StructType {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", strings.TrimPrefix(owner.PkgPath(), module), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		object := file.Scope.Lookup(owner.Name())
		if object == nil {
			continue
		}
		if spec, ok := object.Decl.(*ast.TypeSpec); ok {
			return spec.Type.(*ast.StructType)
		}
	}
	t.Fatalf("no source of %s", owner)
	return nil
}
