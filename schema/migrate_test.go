package schema_test

import (
	"bytes"
	"fmt"
	osexec "os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/schema"
)

func TestMigrate_Twice(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	applied := migrate(t, url, standard)
	if len(applied) != int(schema.Version) || applied[len(applied)-1].Version != schema.Version {
		t.Errorf("applied %v, want all up to version %d", applied, schema.Version)
	}
	conn := connect(t, url)
	before := catalog(t, conn, "outbox")
	if again := migrate(t, url, standard); len(again) != 0 {
		t.Errorf("applied %v again", again)
	}
	if diff := cmp.Diff(before, catalog(t, conn, "outbox")); diff != "" {
		t.Errorf("the second run changed (-before +after):\n%s", diff)
	}
}

func TestMigrate_SeveralAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	other := schema.Config{Schema: "other", Publication: "other"}
	names := []schema.Config{standard, other, standard, other, standard, standard}
	applied := make([]int, len(names))
	var group errgroup.Group
	for i, cfg := range names {
		group.Go(func() error {
			done, err := schema.Migrate(t.Context(), parse(t, url), cfg, zap.NewNop())
			applied[i] = len(done)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, n := range applied {
		total += n
	}
	if want := 2 * int(schema.Version); total != want {
		t.Errorf("%v migrations were applied, want %d in all", applied, want)
	}
	conn := connect(t, url)
	for _, cfg := range names[:2] {
		if err := schema.Check(t.Context(), conn, cfg.Schema); err != nil {
			t.Error(err)
		}
	}
}

func TestMigrate_WaitsForAnotherMigration(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	migrate(t, url, standard)
	holder := connect(t, url)
	exec(t, holder, `delete from outbox.schema_version`)
	exec(t, holder, `select pg_advisory_lock(hashtextextended('outbox-relay migrate outbox', 0))`)

	done := make(chan error, 1)
	go func() {
		_, err := schema.Migrate(t.Context(), parse(t, url), standard, zap.NewNop())
		done <- err
	}()
	pgtest.Eventually(t, time.Minute, func() error {
		if n := query[int](t, holder, `select count(*) from pg_locks where locktype = 'advisory' and not granted and database =
			(select oid from pg_database where datname = current_database())`); n != 1 {
			return fmt.Errorf("%d sessions wait for the lock", n)
		}
		return nil
	})
	// The other migration gets it done.
	exec(t, holder, `insert into outbox.schema_version select generate_series(1, $1::bigint)`, schema.Version)
	exec(t, holder, `select pg_advisory_unlock_all()`)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := query[int](t, holder, `select count(*) from pg_locks where locktype = 'advisory' and database =
		(select oid from pg_database where datname = current_database())`); n != 0 {
		t.Errorf("%d advisory locks are left", n)
	}
}

func TestMigrate_AFailedMigrationLeavesNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	conn := connect(t, url)
	exec(t, conn, `create publication outbox_relay`)
	_, err := schema.Migrate(t.Context(), parse(t, url), standard, zap.NewNop())
	if refused(err).Code != "42710" || !strings.Contains(err.Error(), `schema "outbox" to version 1`) {
		t.Errorf("got %v, want SQLSTATE 42710 and the version that failed", err)
	}
	if n := query[int](t, conn, `select count(*) from pg_class where relnamespace = 'outbox'::regnamespace and relkind = 'r'`); n != 1 {
		t.Errorf("%d tables are left, want schema_version only", n)
	}
	exec(t, conn, `drop publication outbox_relay`)
	if applied := migrate(t, url, standard); len(applied) != int(schema.Version) {
		t.Errorf("applied %v after the repair", applied)
	}
}

// Somebody else is in the way: the migration gives up before others have to wait
// behind it, and goes through when he is gone.
func TestMigrate_WaitsForNoLockForLong(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	conn := connect(t, url)
	exec(t, conn, `create schema outbox`)
	exec(t, conn, `begin`)
	exec(t, conn, `create table outbox.messages ()`)
	_, err := schema.Migrate(t.Context(), parse(t, url), standard, zap.NewNop())
	if refused(err).Code != "55P03" || !strings.Contains(err.Error(), `schema "outbox" to version 1`) {
		t.Errorf("got %v, want SQLSTATE 55P03 and the version that failed", err)
	}
	exec(t, conn, `rollback`)
	if applied := migrate(t, url, standard); len(applied) != int(schema.Version) {
		t.Errorf("applied %v after that", applied)
	}
}

// SCH-08: names that need quoting, and names that want to be SQL.
func TestMigrate_Names(t *testing.T) {
	t.Parallel()
	for _, cfg := range []schema.Config{
		{Schema: "Sales", Publication: "MyPub"},
		{Schema: "my-schema", Publication: "my-pub"},
		{Schema: "select", Publication: "table"},
		{Schema: `it's "quoted"; drop table users; --`, Publication: `it's "published"; drop table users; --`},
		{Schema: `$body$ {{.Schema}} {{end}} %s $1 \`, Publication: `$body$ :name {{.}} %d \'`},
		{Schema: "Grün 🐘", Publication: strings.Repeat("p", 63)},
	} {
		t.Run(cfg.Schema, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t)
			conn := connect(t, url)
			exec(t, conn, "create table users (name text)")
			for range 2 {
				migrate(t, url, cfg)
			}
			if err := schema.Check(t.Context(), conn, cfg.Schema); err != nil {
				t.Error(err)
			}
			if all, err := schema.Status(t.Context(), parse(t, url), cfg); err != nil || all[0].AppliedAt.IsZero() {
				t.Errorf("status %v, %v", all, err)
			}
			if got := query[string](t, conn, "select pubname || ' of ' || schemaname || '.' || tablename from pg_publication_tables"); got != cfg.Publication+" of "+cfg.Schema+".messages" {
				t.Errorf("publication %s", got)
			}
			exec(t, conn, "select from users")

			// By hand, in another database, it comes to the same.
			byHand := pgtest.Database(t)
			applyByHand(t, byHand, printed(t, cfg))
			if diff := cmp.Diff(catalog(t, conn, cfg.Schema), catalog(t, connect(t, byHand), cfg.Schema)); diff != "" {
				t.Errorf("migrate and print differ (-migrate +print):\n%s", diff)
			}
		})
	}
}

// applyByHand runs SQL as a DBA does: with psql where there is one. The server
// packages without it still show that the text is right.
func applyByHand(t *testing.T, url, sql string) {
	t.Helper()
	psql, err := osexec.LookPath("psql")
	if err != nil {
		if _, err := connect(t, url).PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Fatal(err)
		}
		return
	}
	command := osexec.CommandContext(t.Context(), psql, "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", url)
	command.Stdin = strings.NewReader(sql)
	if out, err := command.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) != 0 {
		t.Fatalf("psql: %v: %s", err, out)
	}
}

func TestMigrate_AfterAMigrationByHand(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	applyByHand(t, url, printed(t, standard))
	if applied := migrate(t, url, standard); len(applied) != 0 {
		t.Errorf("applied %v again", applied)
	}
	// A second time by hand changes nothing.
	conn := connect(t, url)
	before := catalog(t, conn, "outbox")
	_, err := conn.PgConn().Exec(t.Context(), printed(t, standard)).ReadAll()
	if code := refused(err).Code; code != "42P07" {
		t.Errorf("got %v, want SQLSTATE 42P07", err)
	}
	exec(t, conn, "rollback")
	if diff := cmp.Diff(before, catalog(t, conn, "outbox")); diff != "" {
		t.Errorf("the second time changed (-before +after):\n%s", diff)
	}
}

func TestPrintAfter(t *testing.T) {
	t.Parallel()
	var sql strings.Builder
	if err := schema.PrintAfter(&sql, standard, schema.Version); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(sql.String(), "create") {
		t.Errorf("nothing is left to apply, got\n%s", sql.String())
	}
	for _, version := range []int64{-1, schema.Version + 1} {
		if err := schema.PrintAfter(&sql, standard, version); err == nil {
			t.Errorf("version %d is taken", version)
		}
	}
}

func TestMigrate_RefusesNamesThatPostgresWouldChange(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64)
	for _, cfg := range []schema.Config{
		{Schema: "", Publication: "p"},
		{Schema: "s", Publication: ""},
		{Schema: long, Publication: "p"},
		{Schema: "a\nb", Publication: "p"},
		{Schema: "s", Publication: "a\x00b"},
	} {
		if _, err := schema.Migrate(t.Context(), nil, cfg, zap.NewNop()); err == nil {
			t.Errorf("migrate takes %q", cfg)
		}
		if err := schema.Print(&strings.Builder{}, cfg); err == nil {
			t.Errorf("print takes %q", cfg)
		}
	}
	err := schema.Config{Schema: long}.Validate()
	if err == nil || !strings.Contains(err.Error(), long) || !strings.Contains(err.Error(), "publication") {
		t.Errorf("got %v, want both names", err)
	}
}

// Somebody may have given the migrating role a search path with tables,
// functions, operators and types of the same names.
func TestMigrate_HostileSearchPath(t *testing.T) {
	t.Parallel()
	clean, hostile := pgtest.Database(t), pgtest.Database(t)
	migrate(t, clean, standard)

	exec(t, connect(t, hostile), hostileSchema)
	config := parse(t, hostile)
	config.RuntimeParams["search_path"] = "evil, pg_catalog"
	if _, err := schema.Migrate(t.Context(), config, standard, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(catalog(t, connect(t, clean), "outbox"), catalog(t, connect(t, hostile), "outbox")); diff != "" {
		t.Errorf("the search path matters (-clean +hostile):\n%s", diff)
	}
}

// hostileSchema has what a caller could put before Postgres's and our own names.
const hostileSchema = `
create schema evil;
create type evil.timestamptz as (stolen text);
create type evil.jsonb as (stolen text);
create table evil.messages (like pg_catalog.pg_class);
create table evil.claims (like pg_catalog.pg_class);
create table evil.relays (like pg_catalog.pg_class);
create table evil.pg_namespace (nspname text);
create function evil.now() returns pg_catalog.timestamptz language sql as $$ select pg_catalog.timestamptz '1999-01-01' $$;
create function evil.octet_length(text) returns integer language sql as $$ select 1 $$;
create function evil.char_length(text) returns integer language sql as $$ select 1 $$;
create function evil.jsonb_typeof(pg_catalog.jsonb) returns text language sql as $$ select 'object' $$;
create function evil.always(pg_catalog.timestamptz, pg_catalog.timestamptz) returns boolean language sql as $$ select true $$;
create operator evil.<= (leftarg = pg_catalog.timestamptz, rightarg = pg_catalog.timestamptz, function = evil.always);
create function evil.plus(pg_catalog.timestamptz, interval) returns pg_catalog.timestamptz language sql as $$ select $1 $$;
create operator evil.+ (leftarg = pg_catalog.timestamptz, rightarg = interval, function = evil.plus);`

func TestStatus(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	conn := connect(t, url)
	status := func() []schema.Migration {
		t.Helper()
		all, err := schema.Status(t.Context(), parse(t, url), standard)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	pending := status()
	if len(pending) != int(schema.Version) || pending[0].Name != "0001_outbox" || !pending[0].AppliedAt.IsZero() {
		t.Errorf("before: %v", pending)
	}
	if n := query[int](t, conn, `select count(*) from pg_namespace where nspname = 'outbox'`); n != 0 {
		t.Error("the look at the status made the schema")
	}
	migrate(t, url, standard)
	for _, m := range status() {
		if since := time.Since(m.AppliedAt); since < 0 || since > time.Hour {
			t.Errorf("version %d was applied %v ago", m.Version, since)
		}
	}
	exec(t, conn, `insert into outbox.schema_version values (999)`)
	all := status()
	if newest := all[len(all)-1]; newest.Version != 999 || newest.Name != "" || newest.AppliedAt.IsZero() {
		t.Errorf("a newer program's migration: %v", newest)
	}
}

// What goes wrong is told in the words of the database, on one line.
func TestMigrate_TellsItsTroubleOnOneLine(t *testing.T) {
	t.Parallel()
	nobody, err := pgx.ParseConfig("postgres://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	_, migrated := schema.Migrate(t.Context(), nobody, standard, zap.NewNop())
	_, asked := schema.Status(t.Context(), nobody, standard)
	for what, err := range map[string]error{"migrate": migrated, "status": asked} {
		if err == nil || strings.ContainsAny(err.Error(), "\n\t") || !strings.Contains(err.Error(), "connect: failed to connect to `user=nobody database=none`: 127.0.0.1:1") ||
			strings.Contains(err.Error(), "initialize") {
			t.Errorf("%s says %v", what, err)
		}
	}

	url := pgtest.Database(t)
	exec(t, connect(t, url), `create schema outbox; create table outbox.messages (id text)`)
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	_, err = schema.Migrate(t.Context(), config, standard, zap.NewNop())
	if want := `migrate schema "outbox" to version 1: ERROR: relation "messages" already exists (SQLSTATE 42P07)`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
