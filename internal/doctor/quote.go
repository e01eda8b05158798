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

// script joins statements to one text.
func script(statements ...string) string { return strings.Join(statements, ";\n") + ";" }
