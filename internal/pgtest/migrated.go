package pgtest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/schema"
)

// migrated is the database that the migrated ones are copies of.
const migrated = "outbox_migrated"

// Migrated is the URL of a fresh database on the shared cluster with our schema
// in it, under its default names. It is dropped like that of [Database].
func Migrated(t TB) string {
	t.Helper()
	return Shared(t).Migrated(t)
}

// Migrated is like the function [Migrated] on this cluster.
func (c *Cluster) Migrated(t TB) string {
	t.Helper()
	c.template.Do(func() { c.migrated = c.makeTemplate() })
	if c.migrated != nil {
		t.Fatalf("make the migrated database: %v", c.migrated)
	}
	return c.newDatabase(t, migrated)
}

func (c *Cluster) makeTemplate() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := c.exec("create database " + migrated); err != nil {
		return err
	}
	config, err := pgx.ParseConfig(c.URL(migrated))
	if err != nil {
		return err
	}
	names := schema.Config{Schema: schema.DefaultSchema, Publication: schema.DefaultPublication}
	if _, err := schema.Migrate(ctx, config, names, zap.NewNop()); err != nil {
		return err
	}
	// Nobody connects by mistake, so it can always be copied.
	return c.exec(fmt.Sprintf("alter database %s allow_connections false", migrated))
}
