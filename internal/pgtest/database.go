package pgtest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// dropTimeout bounds the clean-up of a database, and what else a superuser does:
// a drop waits for every process of the server.
const dropTimeout = time.Minute

var databases atomic.Int64

// Database is the URL of a fresh, empty database on the shared cluster. It is
// dropped at the test's end, with all that is connected to it and all its slots.
func Database(t TB) string {
	t.Helper()
	return Shared(t).Database(t)
}

// Database is like [Database] on this cluster.
func (c *Cluster) Database(t TB) string {
	t.Helper()
	return c.newDatabase(t, "template1")
}

func (c *Cluster) newDatabase(t TB, template string) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	if err := c.clone(template, name); err != nil {
		t.Fatalf("create database %s: %v", name, err)
	}
	t.Cleanup(func() {
		if !c.server.Running() {
			return
		}
		if err := c.dropDatabase(name); err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	return c.URL(name)
}

func (c *Cluster) clone(template, name string) error {
	c.cloning.Lock()
	defer c.cloning.Unlock()
	return c.exec("create database " + name + " template " + template)
}

// exec runs statements as superuser in the maintenance database.
func (c *Cluster) exec(statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	return withConn(ctx, c.URL("postgres"), func(conn *pgx.Conn) error {
		for _, statement := range statements {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

func withConn(ctx context.Context, url string, use func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(use(conn), conn.Close(ctx))
}

// dropDatabase drops a database against all resistance: prepared transactions
// and slots outlive their connections and forbid the drop.
func (c *Cluster) dropDatabase(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	if err := withConn(ctx, c.URL(name), func(conn *pgx.Conn) error { return rollbackPrepared(ctx, conn) }); err != nil {
		return err
	}
	return withConn(ctx, c.URL("postgres"), func(conn *pgx.Conn) error {
		if err := dropSlots(ctx, conn, name); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "drop database "+name+" with (force)")
		return err
	})
}

// rollbackPrepared ends the prepared transactions of the connection's database.
func rollbackPrepared(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, "select format('rollback prepared %L', gid) from pg_prepared_xacts where database = current_database()")
	if err != nil {
		return err
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// dropSlots ends the readers of the database's slots and drops them. A slot is
// free a moment after its reader is told to end.
func dropSlots(ctx context.Context, conn *pgx.Conn, database string) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		var left int
		err := conn.QueryRow(ctx, `
			select count(case when active_pid is null
				then pg_drop_replication_slot(slot_name)::text
				else pg_terminate_backend(active_pid)::text end)
			from pg_replication_slots where database = $1`, database).Scan(&left)
		if err == nil && left == 0 {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("drop the slots of %s: %d left: %w", database, left, errors.Join(err, ctx.Err()))
		}
	}
}
