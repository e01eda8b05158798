package schema

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// connectError says that the database could not be connected to, on one line.
type connectError struct{ err error }

func (e *connectError) Error() string { return "connect: " + pgtext.OneLine(e.err) }

func (e *connectError) Unwrap() error { return e.err }

// Hint says who looks closer.
func (e *connectError) Hint() string { return "`outbox-relay doctor` says more" }

// plain is an error of the database as it is, without what goose says about its
// own steps.
func plain(err error) error {
	if refused, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		if pooler, ok := errors.AsType[*PoolerError](err); ok {
			return pooler
		}
		return &connectError{refused}
	}
	for {
		cause := errors.Unwrap(err)
		if cause == nil || !strings.HasPrefix(err.Error(), "failed to ") {
			return err
		}
		err = cause
	}
}
