package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"go.uber.org/zap"
)

// Migration is one step of the schema's history.
type Migration struct {
	Version int64 `json:"version"`
	// Name says what it does; empty for a migration that this program does not
	// know, because a newer one applied it.
	Name string `json:"name"`
	// AppliedAt is zero while the migration is pending.
	AppliedAt time.Time `json:"applied_at,omitzero"`
}

// Migrate brings the schema to [Version] and returns what it applied, which is
// nothing if the schema was there already. Each migration commits on its own, and
// fails if it has to wait for a lock for more than three seconds.
// Migrations of the same schema wait for each other; for their advisory lock the
// connection must keep its session, so behind a pooler it returns a
// [*PoolerError].
//
// The role needs CREATE on the database, for the schema and the publication.
func Migrate(ctx context.Context, database *pgx.ConnConfig, cfg Config, log *zap.Logger) ([]Migration, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*database, stdlib.OptionAfterConnect(prepare))
	defer func() { _ = db.Close() }() // every connection is back in the pool
	log = log.Named("schema").With(zap.String("schema", cfg.Schema))

	provider, err := newProvider(db, cfg, log)
	if err != nil {
		return nil, fmt.Errorf("migrate schema %q: %w", cfg.Schema, err)
	}
	start := time.Now()
	results, err := provider.Up(ctx)
	if err != nil {
		return nil, migrateError(cfg, err)
	}
	applied := make([]Migration, 0, len(results))
	for _, r := range results {
		m := migrations[r.Source.Version-1]
		applied = append(applied, Migration{Version: m.version, Name: m.name, AppliedAt: time.Now()})
		log.Debug("migration applied", zap.Int64("version", m.version), zap.String("migration", m.name), zap.Duration("elapsed", r.Duration))
	}
	log.Debug("schema is up to date", zap.Int64("version", Version), zap.Duration("elapsed", time.Since(start)))
	return applied, nil
}

// prepare makes a connection fit for migrations: it leads to the server itself,
// and the role's own tables and functions are kept out of goose's statements.
func prepare(ctx context.Context, conn *pgx.Conn) error {
	if err := refusePooler(ctx, conn); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, `set search_path = pg_catalog, pg_temp`)
	return err
}

// PoolerError says that a connection pooler stands between a migration and the
// server.
type PoolerError struct{}

// Error implements error.
func (*PoolerError) Error() string {
	return "a connection pooler is in the way: migrations hold a lock of their session"
}

// Hint is a sentence that says what to do.
func (*PoolerError) Hint() string {
	return "set DATABASE_URL to the direct address of the server for this, or apply what `outbox-relay migrate print` prints"
}

// refusePooler fails behind a pooler: that names a process of its own when a
// client connects, because which one of the server will serve the client is not
// known yet. The lock could end up in a session that somebody else gets.
func refusePooler(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	err := conn.QueryRow(ctx, `select pg_catalog.pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	if err == nil && pid != conn.PgConn().PID() {
		err = &PoolerError{}
	}
	return err
}

// migrateError names the version that failed.
func migrateError(cfg Config, err error) error {
	if partial := new(goose.PartialError); errors.As(err, &partial) {
		return fmt.Errorf("migrate schema %q to version %d: %w", cfg.Schema, partial.Failed.Source.Version, plain(partial.Err))
	}
	return fmt.Errorf("migrate schema %q: %w", cfg.Schema, plain(err))
}

// newProvider gives the embedded migrations to goose: it decides which are
// pending, and runs each in a transaction together with its version row.
func newProvider(db *sql.DB, cfg Config, log *zap.Logger) (*goose.Provider, error) {
	steps := make([]*goose.Migration, 0, len(migrations))
	for _, m := range migrations {
		steps = append(steps, goose.NewGoMigration(m.version, &goose.GoFunc{
			RunTx: func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, m.sql(cfg))
				return err
			},
		}, nil))
	}
	return goose.NewProvider(goose.DialectCustom, db, nil,
		goose.WithStore(versionTable{cfg}),
		goose.WithSessionLocker(migrationLock{cfg, log}),
		goose.WithGoMigrations(steps...),
		goose.WithDisableGlobalRegistry(true),
		goose.WithLogger(goose.NopLogger()),
	)
}
