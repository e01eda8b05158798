package schema

import (
	"fmt"
	"io"
)

// Print writes the SQL of all migrations, for people who apply it by hand, for
// example with psql. It leaves exactly what [Migrate] leaves, so that [Check]
// is content and a later Migrate goes on from there.
func Print(w io.Writer, cfg Config) error { return PrintAfter(w, cfg, 0) }

// PrintAfter is [Print] for a schema that has the migrations up to a version
// already.
func PrintAfter(w io.Writer, cfg Config, version int64) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if version < 0 || version > Version {
		return fmt.Errorf("print migrations after version %d: this program knows the versions 0 to %d", version, Version)
	}
	out := &printer{w: w}
	out.printf("-- Outbox Relay, migrations %d to %d.\n", version+1, Version)
	out.printf("-- Apply each transaction once, and stop at the first error (psql -v ON_ERROR_STOP=1).\n")
	out.printf("-- The role that applies them owns everything and needs CREATE on the database.\n")
	if version == 0 {
		out.printf("\nbegin;\ncreate schema if not exists %s;\n%scommit;\n", quote(cfg.Schema), render("version_table", cfg))
	}
	for _, m := range migrations[version:] {
		out.printf("\n-- Migration %s\nbegin;\n%s", m.name, m.sql(cfg))
		out.printf("insert into %s (version) values (%d);\ncommit;\n", versionTable{cfg}.name(), m.version)
	}
	return out.err
}

// printer keeps the first error of its writer.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
