package outbox

import (
	"errors"
	"fmt"
)

// The SQLSTATEs that say how a database was set up, and not what was written.
const (
	undefinedTable    = "42P01"
	undefinedFunction = "42883"
	undefinedSchema   = "3F000"
	noRight           = "42501"
)

// withRemedy adds what to do to an error that whoever sets up a database meets.
func withRemedy(err error) error {
	// pgx and other drivers have this method.
	answer, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if !ok {
		return err
	}
	switch answer.SQLState() {
	case undefinedTable, undefinedFunction, undefinedSchema:
		return fmt.Errorf("%w: `outbox-relay migrate up` makes the outbox in this database", err)
	case noRight:
		return fmt.Errorf("%w: `outbox-relay grants print` has the rights that an application needs", err)
	}
	return err
}
