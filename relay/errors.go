package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrEpochLost says that another relay took over the slot: everything in hand
// is dropped, because the other one may be delivering it already. It is not an
// alarm.
var ErrEpochLost = errors.New("another relay took over")

// ErrDrainTimeout is the cause with which requests end that did not finish
// within the drain timeout.
var ErrDrainTimeout = errors.New("drain timeout")

// sqlstateEpochLost is raised by record_position when the epoch is not ours.
const sqlstateEpochLost = "OR001"

// sqlstateLockTimeout says that a statement has waited too long for a lock.
const sqlstateLockTimeout = "55P03"

// routineRowSecurity is where the server refuses a statement that would not see
// all rows. The text is in its language, the code that of every missing right.
const routineRowSecurity = "check_enable_rls"

// asPublishError returns what a publisher said about a failure. A publisher
// that returns another error broke its contract; the outcome is unknown then.
func asPublishError(err error) *PublishError {
	if failure, ok := errors.AsType[*PublishError](err); ok {
		return failure
	}
	return &PublishError{Class: UnknownOutcome, Err: err}
}

// classifyWrite turns an error of the database into what the session does next:
// ErrEpochLost ends it, anything else is worth another try.
func classifyWrite(err error) error {
	if errors.Is(err, errElsewhere) {
		return fmt.Errorf("%w: %w", ErrEpochLost, err)
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == sqlstateEpochLost {
		return fmt.Errorf("%w: %s", ErrEpochLost, pgErr.Message)
	}
	return err
}

// isPermanent reports whether an error of the database will come again until
// a person acts: a missing right, table, column or function. Row security is none:
// what needs the table waits for its end, and the stream goes on meanwhile.
func isPermanent(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Routine == routineRowSecurity {
		return false
	}
	switch pgErr.Code {
	case "42501", "42P01", "42703", "42883", "3F000":
		return true
	}
	return false
}

// troublesome returns an error of a statement unless it is an answer: no row, a
// row that is there already, an epoch that is not ours.
func troublesome(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if errors.Is(err, pgx.ErrNoRows) || ok && (pgErr.Code == "23505" || pgErr.Code == sqlstateEpochLost) {
		return nil
	}
	return err
}

// over reports whether a loop has been asked to end: then an error is the end's
// and says nothing.
func over(ctx context.Context) bool { return ctx.Err() != nil }
