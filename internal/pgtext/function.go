package pgtext

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Function is the function in which a statement failed, such as that of a trigger,
// with its line; empty if it failed in none, or the server does not speak English. The
// rest of what the server tells about the place may have values in it and is left out.
func Function(err error) string {
	failed, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return ""
	}
	for line := range strings.Lines(failed.Where) {
		if rest, found := strings.CutPrefix(strings.TrimSpace(line), "PL/pgSQL function "); found {
			name, _, _ := strings.Cut(rest, " at ")
			return "function " + name
		}
	}
	return ""
}
