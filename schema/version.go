package schema

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier is what a check needs of a connection, a pool or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// VersionError says that the schema is older than this program needs.
type VersionError struct {
	// Schema is the name of the schema.
	Schema string
	// Have is the version of the schema; 0 if it is not there at all.
	Have int64
	// Want is the version that this program needs.
	Want int64
}

// Error implements error.
func (e *VersionError) Error() string {
	if e.Have == 0 {
		return fmt.Sprintf("schema %q is not migrated: it has version 0, this program needs version %d; %s", e.Schema, e.Want, e.Hint())
	}
	return fmt.Sprintf("schema %q has version %d, this program needs version %d; %s", e.Schema, e.Have, e.Want, e.Hint())
}

// Hint is what to do about it.
func (e *VersionError) Hint() string {
	return "run `outbox-relay migrate up`, or `outbox-relay migrate print` to apply it by hand"
}

// Check returns nil if the schema of that name has all migrations of this
// program, and a [*VersionError] if it has not. More migrations are no error:
// they only add, so that a program can be taken back to its last version.
func Check(ctx context.Context, conn Querier, name string) error {
	have, err := current(ctx, conn, name)
	switch {
	case err != nil:
		return fmt.Errorf("check schema %q: %w", name, err)
	case have < Version:
		return &VersionError{Schema: name, Have: have, Want: Version}
	default:
		return nil
	}
}

// current is the newest applied migration, 0 without a schema.
func current(ctx context.Context, conn Querier, name string) (version int64, err error) {
	sql := `select coalesce(max(version), 0) from ` + versionTable{Config{Schema: name}}.name()
	err = conn.QueryRow(ctx, sql).Scan(&version)
	if isMissing(err) {
		return 0, nil
	}
	return version, err
}

// isMissing reports whether the server knows no such table or schema.
func isMissing(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && (refused.Code == "42P01" || refused.Code == "3F000")
}
