package pgtext

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// ConnectError says on one line that a connection could not be opened.
type ConnectError struct {
	What string // which one, such as "database"; empty where there is only one
	Err  error
}

// Error implements error.
func (e *ConnectError) Error() string {
	if e.What == "" {
		return "connect: " + OneLine(e.Err)
	}
	return "connect " + e.What + ": " + OneLine(e.Err)
}

// Unwrap returns the cause.
func (e *ConnectError) Unwrap() error { return e.Err }

// SQLState is the server's code for an error; empty if it is none of the
// server's.
func SQLState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}
