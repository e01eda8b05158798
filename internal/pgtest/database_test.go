package pgtest_test

import (
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func TestDatabase_IsFreshAndGoneAfterwards(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Shared(t)
	var names []string
	t.Run("two databases", func(t *testing.T) {
		urls := []string{pgtest.Database(t), pgtest.Database(t)}
		for _, url := range urls {
			names = append(names, query[string](t, url, "select current_database()"))
			// An open transaction in any database keeps a slot from being made,
			// so all slots come first.
			query[string](t, url, "select pg_create_logical_replication_slot('left_' || current_database(), 'pgoutput')::text")
		}
		for _, url := range urls {
			leaveEverythingBehind(t, url)
		}
	})
	if names[0] == names[1] {
		t.Errorf("both tests got %s", names[0])
	}
	if got := query[int](t, cluster.URL("postgres"), "select count(*) from pg_database where datname = any($1)", names); got != 0 {
		t.Errorf("%d databases are left", got)
	}
	if got := query[int](t, cluster.URL("postgres"), "select count(*) from pg_replication_slots where database = any($1)", names); got != 0 {
		t.Errorf("%d slots are left", got)
	}
}

// leaveEverythingBehind makes what forbids the drop of a database, besides slots.
func leaveEverythingBehind(t *testing.T, url string) {
	t.Helper()
	conn := pgtest.Connect(t, url)
	name := conn.Config().Database
	for _, sql := range []string{
		"create table t (a int)",
		"begin", "insert into t values (1)", "prepare transaction 'left in " + name + "'",
		"begin", "insert into t values (2)",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

func TestMigrated_HasTheSchemaAndIsACopyOfItsOwn(t *testing.T) {
	t.Parallel()
	first, second := pgtest.Migrated(t), pgtest.Migrated(t)
	query[int64](t, first, `select outbox.enqueue('k', 'orders', '{}')`)
	if got := query[int](t, second, "select count(*) from outbox.messages"); got != 0 {
		t.Errorf("%d messages, want none", got)
	}
	if got := query[int](t, second, "select count(*) from pg_publication_tables"); got != 1 {
		t.Errorf("%d published tables, want 1", got)
	}
}

func TestMigrated_ManyAtOnce(t *testing.T) {
	t.Parallel()
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			query[int64](t, pgtest.Migrated(t), `select outbox.enqueue('k', 'orders', '{}')`)
		})
	}
}
