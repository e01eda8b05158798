package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// Status lists the migrations, oldest first: those of this program, applied or
// pending, and those that a newer program has applied. It changes nothing and
// needs SELECT on the table schema_version.
func Status(ctx context.Context, database *pgx.ConnConfig, cfg Config) (all []Migration, err error) {
	if err := validateName("schema", cfg.Schema); err != nil {
		return nil, err
	}
	database = database.Copy()
	database.DefaultQueryExecMode = pgx.QueryExecModeExec // also behind a pooler
	conn, err := pgx.ConnectConfig(ctx, database)
	if err != nil {
		return nil, &connectError{pgtext.ConnectError{Err: err}}
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()

	applied, err := listApplied(ctx, conn, cfg)
	if err != nil {
		return nil, fmt.Errorf("status of schema %q: %w", cfg.Schema, err)
	}
	for _, m := range migrations {
		all = append(all, Migration{Version: m.version, Name: m.name})
	}
	for _, m := range applied {
		if i := slices.IndexFunc(all, func(known Migration) bool { return known.Version == m.Version }); i >= 0 {
			all[i].AppliedAt = m.AppliedAt
		} else {
			all = append(all, m)
		}
	}
	return all, nil
}

// listApplied returns the rows of the version table, oldest first; none without
// the table.
func listApplied(ctx context.Context, conn *pgx.Conn, cfg Config) ([]Migration, error) {
	rows, err := conn.Query(ctx, `select version, applied_at from `+versionTable{cfg}.name()+` order by version`)
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	applied, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m Migration, err error) {
		return m, row.Scan(&m.Version, &m.AppliedAt)
	})
	if isMissing(err) {
		return nil, nil
	}
	return applied, err
}
