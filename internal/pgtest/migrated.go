package pgtest

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/schema"
)

// migrated is the database that the migrated ones are copies of.
const migrated = "outbox_migrated"

// template is the state of a cluster's migrated database.
type template struct {
	// mu is also held while it is copied: Postgres copies no database that
	// somebody is connected to, and two copies at once disturb each other.
	mu    sync.Mutex
	tried bool
	err   error
}

// Migrated is the URL of a fresh database on the shared cluster with our schema
// in it, under its default names. It is dropped like that of [Database].
func Migrated(t TB) string {
	t.Helper()
	return Shared(t).Migrated(t)
}

// Migrated is like the function [Migrated] on this cluster.
func (c *Cluster) Migrated(t TB) string {
	t.Helper()
	c.template.mu.Lock()
	defer c.template.mu.Unlock()
	if !c.template.tried {
		c.template.tried = true
		c.template.err = c.makeTemplate()
	}
	if c.template.err != nil {
		t.Fatalf("make the migrated database: %v", c.template.err)
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
