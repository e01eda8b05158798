package main

import (
	"encoding/json"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// jsonFlag adds --json to a verb whose answer a machine may read.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

// printJSON writes a value as indented JSON. Every document has a
// schema_version, which changes when a reader would break.
func (p *program) printJSON(value any) error {
	e := json.NewEncoder(p.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// colour reports whether data on out may be coloured: on a terminal, unless
// NO_COLOR says no.
func (p *program) colour() bool {
	value, _ := p.environment().Lookup("NO_COLOR")
	return value == "" && isTerminal(p.out)
}

// isTerminal reports whether somebody may be looking.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
