package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"text/template"
)

// Version is the newest migration of this program.
const Version int64 = 1

//go:embed migrations/*.sql
var files embed.FS

// migration is one embedded file: plain SQL in which the names are still to be
// put in. It runs in a transaction of its own.
type migration struct {
	version int64
	name    string // of the file, without folder and ending
}

// migrations are the embedded migrations, oldest first.
var migrations = mustList()

func mustList() []migration {
	names, err := fs.Glob(files, "migrations/[0-9]*.sql")
	if err != nil {
		panic(err)
	}
	slices.Sort(names)
	var all []migration
	for i, name := range names {
		m := migration{name: strings.TrimSuffix(path.Base(name), ".sql")}
		if _, err := fmt.Sscanf(m.name, "%04d_", &m.version); err != nil || m.version != int64(i+1) {
			panic("migration out of order: " + name)
		}
		all = append(all, m)
	}
	return all
}

// lockTimeout bounds the wait of a migration for a lock. Who waits for a table makes
// everybody wait who comes after: rather the migration fails, and is tried again when
// the transaction in the way has ended.
const lockTimeout = "set local lock_timeout = '3s';\n"

// sql is the migration with the names put in.
func (m migration) sql(cfg Config) string { return lockTimeout + render(m.name, cfg) }

// render puts the names into an embedded file. They are quoted identifiers
// there and stand in no string and no function body.
func render(name string, cfg Config) string {
	text, err := files.ReadFile("migrations/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	var rendered strings.Builder
	names := Config{Schema: quote(cfg.Schema), Publication: quote(cfg.Publication)}
	if err := template.Must(template.New(name).Parse(string(text))).Execute(&rendered, names); err != nil {
		panic(err)
	}
	return rendered.String()
}
