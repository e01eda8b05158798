package schema

import (
	"context"
	"errors"

	"github.com/pressly/goose/v3/database"
)

// versionTable is goose's view of the table schema_version: one row for each
// applied migration. Its primary key is what keeps a migration from being
// applied twice, whoever tries.
type versionTable struct{ cfg Config }

func (t versionTable) name() string { return quote(t.cfg.Schema) + ".schema_version" }

// Tablename implements [database.Store].
func (t versionTable) Tablename() string { return t.name() }

// CreateVersionTable makes the schema as well, if there is none: it may be there
// already and belong to a role that cannot make one. goose calls this without
// its lock, so it takes the lock for its own transaction.
func (t versionTable) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	if _, err := db.ExecContext(ctx, `select pg_advisory_xact_lock(`+lockKey+`)`, t.cfg.Schema); err != nil {
		return err
	}
	var exists bool
	err := db.QueryRowContext(ctx, `select exists (select from pg_namespace where nspname = $1)`, t.cfg.Schema).Scan(&exists)
	if err != nil {
		return err
	}
	if !exists {
		if _, err := db.ExecContext(ctx, `create schema `+quote(t.cfg.Schema)); err != nil {
			return err
		}
	}
	_, err = db.ExecContext(ctx, render("version_table", t.cfg))
	return err
}

// TableExists implements [database.StoreExtender].
func (t versionTable) TableExists(ctx context.Context, db database.DBTxConn) (exists bool, err error) {
	err = db.QueryRowContext(ctx, `select exists (
		select from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = $1 and c.relname = 'schema_version')`, t.cfg.Schema).Scan(&exists)
	return exists, err
}

// Insert records a migration. goose also records a version 0 when it has made
// the table; the table holds real versions only.
func (t versionTable) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	if req.Version == 0 {
		return nil
	}
	_, err := db.ExecContext(ctx, `insert into `+t.name()+` (version) values ($1)`, req.Version)
	return err
}

// Delete refuses: the way back is a new migration.
func (t versionTable) Delete(context.Context, database.DBTxConn, int64) error {
	return errors.New("migrations go forward only")
}

// GetMigration implements [database.Store].
func (t versionTable) GetMigration(ctx context.Context, db database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	all, err := t.list(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if m.Version == version {
			return &database.GetMigrationResult{Timestamp: m.AppliedAt, IsApplied: true}, nil
		}
	}
	return nil, database.ErrVersionNotFound
}

// GetLatestVersion implements [database.Store].
func (t versionTable) GetLatestVersion(ctx context.Context, db database.DBTxConn) (version int64, err error) {
	err = db.QueryRowContext(ctx, `select coalesce(max(version), 0) from `+t.name()).Scan(&version)
	return version, err
}

// ListMigrations returns the newest first, with the version 0 that goose expects
// at the end.
func (t versionTable) ListMigrations(ctx context.Context, db database.DBTxConn) ([]*database.ListMigrationsResult, error) {
	all, err := t.list(ctx, db)
	if err != nil {
		return nil, err
	}
	var results []*database.ListMigrationsResult
	for _, m := range append(all, Migration{}) {
		results = append(results, &database.ListMigrationsResult{Version: m.Version, IsApplied: true})
	}
	return results, nil
}

// list returns the applied migrations, newest first.
func (t versionTable) list(ctx context.Context, db database.DBTxConn) ([]Migration, error) {
	rows, err := db.QueryContext(ctx, `select version, applied_at from `+t.name()+` order by version desc`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err says what matters
	var all []Migration
	for rows.Next() {
		var m Migration
		if err := rows.Scan(&m.Version, &m.AppliedAt); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, rows.Err()
}
