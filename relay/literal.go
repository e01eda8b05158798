package relay

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// literally returns statements as one text, each with its arguments put in as
// literals: what the simple protocol takes, which is the only one that has
// several statements and a COPY in one message
// (https://www.postgresql.org/docs/current/protocol-flow.html). In a statement a
// dollar sign stands before the number of an argument only.
func literally(conn *pgx.Conn, list []statement) (string, error) {
	var text strings.Builder
	for _, s := range list {
		pieces := strings.Split(s.sql, "$")
		text.WriteString(pieces[0])
		for _, piece := range pieces[1:] {
			number, rest := leadingNumber(piece)
			value, err := literal(conn, s.args[number-1])
			if err != nil {
				return "", fmt.Errorf("argument %d of %q: %w", number, s.sql, err)
			}
			text.WriteString(value)
			text.WriteString(rest)
		}
		text.WriteString(";\n")
	}
	return text.String(), nil
}

// leadingNumber cuts the digits off that a text begins with.
func leadingNumber(text string) (number int, rest string) {
	for rest = text; rest != "" && rest[0] >= '0' && rest[0] <= '9'; rest = rest[1:] {
		number = 10*number + int(rest[0]-'0')
	}
	return number, rest
}

// literal quotes a value. It fails where the connection reads backslashes in
// strings as escapes.
func literal(conn *pgx.Conn, value any) (string, error) {
	text, err := conn.TypeMap().Encode(typeOf(value), pgx.TextFormatCode, value, nil)
	if err != nil {
		return "", err
	}
	escaped, err := conn.PgConn().EscapeString(string(text))
	return "'" + escaped + "'", err
}

// typeOf is the type of Postgres for a value of a statement.
func typeOf(value any) uint32 {
	switch value.(type) {
	case int64:
		return pgtype.Int8OID
	case []int64:
		return pgtype.Int8ArrayOID
	case []int32, []*int32:
		return pgtype.Int4ArrayOID
	case []string, []*string:
		return pgtype.TextArrayOID
	case []*time.Time:
		return pgtype.TimestamptzArrayOID
	}
	return pgtype.TextOID
}
