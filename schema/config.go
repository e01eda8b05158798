package schema

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"
)

// The names that everything has unless somebody chose others.
const (
	DefaultSchema      = "outbox"
	DefaultPublication = "outbox_relay"
)

// Config names what the migrations make. Names are taken as they are, capital
// letters included, and are quoted wherever they stand.
type Config struct {
	// Schema holds all tables, the view and the functions.
	Schema string
	// Publication publishes the inserts into messages. Publications belong to
	// the database: two outboxes of one database need two names.
	Publication string
}

// Validate reports every name that Postgres could not keep as it is.
func (c Config) Validate() error {
	return errors.Join(validateName("schema", c.Schema), validateName("publication", c.Publication))
}

// validateName refuses what Postgres would cut off, and what is never meant.
func validateName(what, name string) error {
	const most = 63 // bytes; the length of a name in Postgres's catalogs
	if name == "" || len(name) > most || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("name of the %s is %q: want 1 to %d bytes without control characters", what, name, most)
	}
	return nil
}

// quote makes an identifier for SQL of a name.
func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
