// Package pgtext puts what went wrong with Postgres on one line for people.
package pgtext

import (
	"slices"
	"strings"
)

// OneLine is the text of an error on one line. pgx tells of each attempt to
// connect on a line of its own, and without sslmode=require there are two for
// each address. Equal ones are told once, and that the server has no TLS is left
// out where another attempt tells more.
func OneLine(err error) string {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	telling := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return strings.Contains(line, "server refused TLS connection")
	})
	if len(telling) > 1 { // more than the heading
		lines = telling
	}
	// A heading ends with a colon, and needs no other mark.
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}
