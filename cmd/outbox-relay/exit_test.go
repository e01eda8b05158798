package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/explain"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/pgtext"
	"github.com/outbox-relay/outbox-relay/internal/verify"
	"github.com/outbox-relay/outbox-relay/schema"
)

func TestExitCode(t *testing.T) {
	t.Parallel()
	server := func(code string) error { return fmt.Errorf("somewhere: %w", &pgconn.PgError{Code: code}) }
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, exitStopped},
		{errors.New("anything"), exitUnexpected},
		{server("53100"), exitUnexpected}, // disk full: it passes
		{server("57P01"), exitUnexpected}, // terminated by an administrator
		{&usageError{}, exitUsage},
		{&config.Error{}, exitUsage},
		{&schema.VersionError{}, exitSchema},
		{fmt.Errorf("remake: %w", cdc.ErrSlotHeld), exitSlotHeld},
		{fmt.Errorf("open: %w", cdc.ErrSlotLost), exitSlotLost},
		{fmt.Errorf("open: %w", cdc.ErrSlotForeign), exitSlotLost},
		{&doctorError{failed: 1}, exitDoctorFailed},
		{fmt.Errorf("start: %w", &doctor.RightsError{}), exitNeedsPerson},
		{&repairError{"D28"}, exitDoctorFailed},
		{&explain.UnknownError{}, exitNoMessage},
		{&verifyError{new(verify.Report)}, exitVerifyFailed},
		{fmt.Errorf("open: %w", new(cdc.OperatorError)), exitNeedsPerson},
		{server("42501"), exitNeedsPerson},
		{&connectError{pgtext.ConnectError{Err: server("28P01")}}, exitNeedsPerson},
		{&loggedError{server("3D000")}, exitNeedsPerson},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("exit code of %T %v is %d, want %d", c.err, c.err, got, c.want)
		}
	}
}

// OPS-01: a server without logical WAL does not become one by starting again.
func TestRun_NeedsAPerson_WALLevel(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{"wal_level": "replica"}})
	r := rigOn(t, cluster.Migrated(t))
	got := expectCode(t, r.settings, exitNeedsPerson, []string{"run"}, `wal_level is \"replica\", needs \"logical\"`, "restart Postgres")
	if last := lastLine(got.err); !strings.Contains(last, `"exit_code":14`) {
		t.Errorf("the last line is %s", last)
	}
	if n := query[int](t, r.url, "select count(*)::int from pg_replication_slots"); n != 0 {
		t.Errorf("%d slots were made", n)
	}
}

// SCH-05: nor does a publication come back.
func TestRun_NeedsAPerson_Publication(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sql(t, r.url, "drop publication outbox_relay")
	expectCode(t, r.settings, exitNeedsPerson, []string{"run"}, "does not exist", "create publication")
}

// OPS-03: nor do rights. What is missing is named, with the role that lacks it.
func TestRun_NeedsAPerson_Rights(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	config, err := pgx.ParseConfig(r.url)
	if err != nil {
		t.Fatal(err)
	}
	role := "poor_" + config.Database // roles belong to the whole server
	sql(t, r.url, "create role "+role+" login")
	t.Cleanup(func() { dropRole(t, r.url, role) })
	environment := r.with("DATABASE_URL", strings.Replace(r.url, "postgres@", role+"@", 1))

	expectCode(t, environment, exitNeedsPerson, []string{"run"}, "permission denied", "grants print")
	expectCode(t, environment, exitNeedsPerson, []string{"status"}, "permission denied", "grants print")
	sql(t, r.url, "grant usage on schema outbox to "+role, "grant select on all tables in schema outbox to "+role)
	expectCode(t, environment, exitNeedsPerson, []string{"run"}, "lacks rights that the relay uses: insert on dispatched", "relays", "grants print")
	sql(t, r.url, "grant insert, update, delete on all tables in schema outbox to "+role, "grant execute on all functions in schema outbox to "+role)
	expectCode(t, environment, exitNeedsPerson, []string{"run"}, `alter role \"`+role+`\" replication`)
}

// dropRole drops a role with what it was granted. It is for the test's end.
func dropRole(t *testing.T, url, role string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(context.Background())
	if _, err := conn.PgConn().Exec(context.Background(), "drop owned by "+role+"; drop role "+role).ReadAll(); err != nil {
		t.Error(err)
	}
}
