package doctor

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// ident quotes a name for SQL that a person will run.
func ident(parts ...string) string { return pgx.Identifier(parts).Sanitize() }

// literal quotes a text for SQL that a person will run.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// in puts the schema's name into SQL that is written for the schema outbox.
func (p *patient) in(sql string) string {
	return strings.ReplaceAll(sql, "outbox.", ident(p.cfg.Schema)+".")
}

// table is the quoted name of one of our tables.
func (p *patient) table(name string) string { return ident(p.cfg.Schema, name) }

// statements are SQL that is run one after another, not in one transaction.
type statements []string

// script is a list of statements.
func script(list ...string) statements { return list }

// String is the list as a person gives it to psql.
func (s statements) String() string {
	if len(s) == 0 {
		return ""
	}
	return strings.Join(s, ";\n") + ";"
}
