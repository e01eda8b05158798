package schema

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// connectError says that the database could not be connected to.
type connectError struct{ pgtext.ConnectError }

// Hint says who looks closer.
func (e *connectError) Hint() string { return "`outbox-relay doctor` says more" }

// plain is an error of the database as it is, without what goose says about its
// own steps.
func plain(err error) error {
	if refused, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		if pooler, ok := errors.AsType[*PoolerError](err); ok {
			return pooler
		}
		return &connectError{pgtext.ConnectError{Err: refused}}
	}
	for {
		cause := errors.Unwrap(err)
		if cause == nil || !strings.HasPrefix(err.Error(), "failed to ") {
			return err
		}
		err = cause
	}
}
