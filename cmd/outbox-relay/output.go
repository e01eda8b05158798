package main

import (
	"encoding/json"

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
