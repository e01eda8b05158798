package pgtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv("PGTEST_ORPHAN"); url != "" {
		orphan()
	}
	pgtest.Main(m, func() error { return goleak.Find() })
}

// openFolder is a temporary folder that the server's user gets into, too.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "outbox-postgres-test-") //nolint:usetesting // its folders are closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func query[T any](t *testing.T, url, sql string, args ...any) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var value T
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func TestStart_SettingsOfTheRigAndOverrides(t *testing.T) {
	t.Parallel()
	c := pgtest.New(t, pgtest.Options{Settings: map[string]string{"max_connections": "33", "application_name": `it's "odd" \ `}})
	for name, want := range map[string]string{
		"wal_level": "logical", "max_replication_slots": "40", "max_prepared_transactions": "5",
		"wal_sender_timeout": "10s", "max_connections": "33", "application_name": `it's "odd" \ `,
	} {
		got := query[string](t, c.URL("postgres"), "select current_setting($1)", name)
		if name == "application_name" {
			got = query[string](t, c.URL("postgres"), "select reset_val from pg_settings where name = $1", name)
		}
		if got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestStart_RunsTheVersionThatIsAskedFor(t *testing.T) {
	t.Parallel()
	wanted := os.Getenv("PG")
	if wanted == "" {
		wanted = query[string](t, pgtest.Shared(t).URL("postgres"), "select current_setting('server_version_num')::int / 10000 || ''")
	}
	c := pgtest.New(t, pgtest.Options{Version: wanted})
	if got := query[int](t, c.URL("postgres"), "select current_setting('server_version_num')::int / 10000"); fmt.Sprint(got) != wanted {
		t.Errorf("server is a Postgres %d, want %s", got, wanted)
	}
	_, err := pgtest.Start(t.Context(), pgtest.Options{Version: "7"})
	if err == nil || !strings.Contains(err.Error(), "hack/postgres 7") {
		t.Errorf("start of version 7: got %v, want the command that brings it", err)
	}
}

func TestStart_AWrongSettingShowsTheServersLog(t *testing.T) {
	t.Parallel()
	_, err := pgtest.Start(t.Context(), pgtest.Options{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("got %v, want an error that names the setting", err)
	}
}

func TestStart_KeepsAFolderThatTheCallerNames(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openFolder(t), "cluster")
	c, err := pgtest.Start(t.Context(), pgtest.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "PG_VERSION")); err != nil {
		t.Error(err)
	}
}

func TestCluster_RestartsOnTheSamePort(t *testing.T) {
	t.Parallel()
	c := pgtest.New(t)
	url := c.URL("postgres")
	query[string](t, url, "select pg_create_logical_replication_slot('kept', 'pgoutput')::text")
	for _, mode := range []string{"smart", "fast", "immediate"} {
		pid := c.PID()
		if err := c.Restart(mode); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		if c.PID() == pid || c.URL("postgres") != url {
			t.Errorf("%s: pid %d after %d, URL %s after %s", mode, c.PID(), pid, c.URL("postgres"), url)
		}
		if got := query[int](t, url, "select count(*) from pg_replication_slots"); got != 1 {
			t.Errorf("%s: %d slots, want 1", mode, got)
		}
	}
	if err := c.Stop("gently"); err == nil {
		t.Error("an unknown mode is taken")
	}
}

func TestCluster_KillTakesEveryProcessAtOnce(t *testing.T) {
	t.Parallel()
	c := pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	pid := int(conn.PgConn().PID())

	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a connection survived")
	}
	if !gone(pid) {
		t.Error("a backend survived")
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query[int](t, c.URL("postgres"), "select 1"); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
}

// orphan is the body of a second process of this test: it starts a cluster,
// prints where, and waits to be killed.
func orphan() {
	c, err := pgtest.Start(context.Background(), pgtest.Options{Dir: os.Getenv("PGTEST_ORPHAN")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.PID())
	select {}
}

func TestCluster_DiesWithItsParent(t *testing.T) {
	t.Parallel()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "PGTEST_ORPHAN="+filepath.Join(openFolder(t), "cluster"))
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatalf("read the server's pid: %v", err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	pgtest.Eventually(t, time.Minute, func() error { // it gives its own processes 5 s
		if !gone(pid) {
			return errors.New("the server survived")
		}
		return nil
	})
}

// gone reports whether a process has ended. Nobody may have asked yet how.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
