package consumer

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// What is wrong with a delivery. Nothing is claimed for it.
var (
	// ErrMalformed says that a delivery cannot be read: trying again is of no use.
	ErrMalformed = errors.New("malformed")
	// ErrUnauthenticated says that a delivery is not signed by whom it should be.
	ErrUnauthenticated = errors.New("unauthenticated")
)

// ErrNoTransaction says that the database did not begin a transaction, or none
// that may write.
var ErrNoTransaction = errors.New("begin a transaction")

func noTransaction(err error) error { return fmt.Errorf("%w: %w", ErrNoTransaction, err) }

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

func unauthenticated(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnauthenticated, fmt.Sprintf(format, args...))
}

// Permanent marks the error of a handler for which trying again is of no use.
// Its transaction is rolled back like any other, and the claim with it.
// Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ cause error }

func (e *permanentError) Error() string { return e.cause.Error() }
func (e *permanentError) Unwrap() error { return e.cause }

// IsPermanent reports whether trying again is of no use: an error of [Permanent],
// or [ErrMalformed].
func IsPermanent(err error) bool {
	_, permanent := errors.AsType[*permanentError](err)
	return permanent || errors.Is(err, ErrMalformed)
}

// PanicError is the panic of a function that the application gave.
type PanicError struct {
	Value any    // what was thrown
	Stack []byte // where, as debug.Stack writes it
}

// Error tells what was thrown, and not where.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// read calls what takes a message out of a delivery. Whatever goes wrong there,
// would go wrong again with the same bytes: the delivery is malformed.
func read(take func() (Message, error)) (m Message, err error) {
	err = protect(func() (err error) {
		m, err = take()
		return err
	})
	if err != nil && !errors.Is(err, ErrMalformed) {
		err = fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return m, err
}

// protect turns a panic into an error, so that one message does
// not end the others. The stack is taken while it is still there.
func protect(handle func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return handle()
}

// isAway reports whether the database did not answer, or said that it cannot work
// for anybody now: it shuts down, lacks something (class 53), has trouble of its
// own (58), or is a standby or read-only (25006).
func isAway(err error) bool {
	if errors.Is(err, ErrNoTransaction) {
		return true
	}
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (answer.Code == "25006" || strings.HasPrefix(answer.Code, "57P0") ||
		strings.HasPrefix(answer.Code, "53") || strings.HasPrefix(answer.Code, "58"))
}

// isCollision reports whether two transactions were in each other's way, so that
// the same one may succeed when it is repeated: a serialization failure or a
// deadlock.
func isCollision(err error) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (answer.Code == "40001" || answer.Code == "40P01")
}
