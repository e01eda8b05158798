package doctor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// OPS-01: wal_level is not logical.
func TestD03_WALLevel(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{"wal_level": "replica"}})
	cfg := newConfig(t, cluster.URL("postgres"))
	r := expect(t, cfg, "D03", doctor.Fail, "replica", "logical", "restart")
	mend(t, cluster.URL("postgres"), r)
	if err := cluster.Restart("fast"); err != nil {
		t.Fatal(err)
	}
	expect(t, cfg, "D03", doctor.Pass)
}

// OPS-03: a role without REPLICATION.
func TestD04_RoleMayNotReplicate(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	role := newRole(t, url, "")
	cfg := newConfig(t, url)
	cfg.Replication = as(cfg.Replication, role)
	report := examine(t, cfg)
	if r := result(t, report, "D06"); r.Status != doctor.Skip || r.Message != "D04 failed" {
		t.Errorf("D06 is %+v", r)
	}
	mend(t, url, expect(t, cfg, "D04", doctor.Fail, pgx.Identifier{role}.Sanitize(), "may not replicate"))
	expect(t, cfg, "D04", doctor.Pass)
	expect(t, cfg, "D06", doctor.Pass)
}

// OPS-03: the membership that RDS uses instead of the attribute.
func TestD04_KnowsRDS(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	url := cluster.URL("postgres")
	execute(t, url, "create role rdsadmin", "create role rds_replication", "create role relay login")
	cfg := newConfig(t, url)
	cfg.Replication = as(cfg.Replication, "relay")
	mend(t, url, expect(t, cfg, "D04", doctor.Fail, "grant rds_replication to"))
	expect(t, cfg, "D04", doctor.Pass, "rds_replication")
	expect(t, cfg, "D01", doctor.Pass, "Amazon RDS")
}

// OUT-09: sessions that are read-only.
func TestD02_ReadOnly(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"role":             "alter role ROLE set default_transaction_read_only = on",
		"database":         "alter database DATABASE set default_transaction_read_only = on",
		"role in database": "alter role ROLE in database DATABASE set default_transaction_read_only = on",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t)
			role := newRole(t, url, "")
			cfg := newConfig(t, url)
			admin := url + "&default_transaction_read_only=off"
			cfg.Database = as(cfg.Database, role)
			execute(t, url, strings.NewReplacer("ROLE", pgx.Identifier{role}.Sanitize(),
				"DATABASE", pgx.Identifier{cfg.Database.Database}.Sanitize()).Replace(statement))
			// An administrator, whose own sessions may be others, finds the same.
			theirs := newConfig(t, admin)
			theirs.Role = role
			expect(t, theirs, "D02", doctor.Fail, "read-only", pgx.Identifier{role}.Sanitize())
			mend(t, admin, expect(t, cfg, "D02", doctor.Fail, "read-only"))
			expect(t, cfg, "D02", doctor.Pass)
			expect(t, theirs, "D02", doctor.Pass)
		})
	}
}

// Sessions of the administrator that are read-only say nothing about the relay's.
func TestD02_ReadOnlyAdministrator(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	cfg := newConfig(t, url+"&default_transaction_read_only=on")
	expect(t, cfg, "D02", doctor.Fail, "DATABASE_URL")
	cfg.Role = newRole(t, url, "")
	expect(t, cfg, "D02", doctor.Pass)
}

// What is set for a role in a database goes before what is set for all.
func TestD02_TheNearestSettingDecides(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	url := cluster.Database(t)
	cfg := newConfig(t, url+"&default_transaction_read_only=off")
	cfg.Role = newRole(t, url, "")
	role, database := pgx.Identifier{cfg.Role}.Sanitize(), pgx.Identifier{cfg.Database.Database}.Sanitize()
	admin := url + "&default_transaction_read_only=off"
	execute(t, admin, "alter role all set default_transaction_read_only = on")
	r := expect(t, cfg, "D02", doctor.Fail, "global", "alter role all")
	execute(t, admin, "alter database "+database+" set default_transaction_read_only = off")
	expect(t, cfg, "D02", doctor.Pass)
	execute(t, admin, "alter role "+role+" set default_transaction_read_only = on")
	expect(t, cfg, "D02", doctor.Fail, "alter role "+role)
	execute(t, admin, "alter role "+role+" in database "+database+" set default_transaction_read_only = off")
	expect(t, cfg, "D02", doctor.Pass)
	mend(t, admin, r)
}

// OUT-09: the address leads to a standby.
func TestD02_Standby(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	if err := cluster.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	signal := filepath.Join(filepath.Dir(cluster.LogFile()), "data", "standby.signal")
	if err := os.WriteFile(signal, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg := newConfig(t, cluster.URL("postgres"))
	expect(t, cfg, "D02", doctor.Fail, "standby", cfg.Database.Host)
	expect(t, cfg, "D09", doctor.Skip, "D02 failed")
}

func TestD01_PgHBA(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	url := cluster.URL("postgres")
	hba := filepath.Join(filepath.Dir(cluster.LogFile()), "data", "pg_hba.conf")
	text, err := os.ReadFile(hba)
	if err != nil {
		t.Fatal(err)
	}
	// As written by somebody who took replication for a database.
	refuse := "host all relay 127.0.0.1/32 reject\nhost replication all 127.0.0.1/32 trust\n"
	if err := os.WriteFile(hba, append([]byte(refuse), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	execute(t, url, "create role relay login replication", "select pg_reload_conf()")
	cfg := newConfig(t, url)
	cfg.Replication = as(cfg.Replication, "relay")
	expect(t, cfg, "D06", doctor.Fail, "pg_hba.conf", `"postgres" "relay"`, "not for the word replication")
	cfg.Database = cfg.Replication
	expect(t, cfg, "D01", doctor.Fail, "pg_hba.conf", `"postgres" "relay"`)
}

func TestD01_NoConnect(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	role := newRole(t, url, "replication")
	cfg := newConfig(t, url)
	execute(t, url, "revoke connect on database "+pgx.Identifier{cfg.Database.Database}.Sanitize()+" from public")
	replication := cfg
	replication.Replication = as(cfg.Replication, role)
	expect(t, replication, "D06", doctor.Fail, "may not connect", "grant connect")
	cfg.Database = as(cfg.Database, role)
	mend(t, url, expect(t, cfg, "D01", doctor.Fail, "may not connect"))
	expect(t, cfg, "D01", doctor.Pass)
	expect(t, replication, "D06", doctor.Pass)
}

func TestD01_Refusals(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"28P01": "password",
		"3D000": "no database",
		"53300": "max_connections",
		"57P03": "starting up",
		"XX000": "cannot connect to 127.0.0.1",
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			server := startFake(t, fake{refuse: code})
			cfg := newConfig(t, "postgres://relay:the-password@"+server+"/app?sslmode=disable")
			r := expect(t, cfg, "D01", doctor.Fail, want, code)
			if text := r.Message + r.Observed + r.Remedy; strings.Contains(text, "the-password") {
				t.Errorf("the password is in %q", text)
			}
		})
	}
}

// OPS-04: poolers in front of the replication connection.
func TestD06_Pooler(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	server := parse(t, url)
	for name, f := range map[string]fake{
		"refuses the parameter": {behind: server, refuseReplication: true},
		"drops the parameter":   {behind: server, dropReplication: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := newConfig(t, url)
			pooler := startFake(t, f)
			cfg.Replication = parse(t, "postgres://postgres@"+pooler+"/"+server.Database+"?sslmode=disable")
			expect(t, cfg, "D06", doctor.Fail, "pooler", "RELAY_REPLICATION_URL")
			expect(t, cfg, "D04", doctor.Pass)
			cfg.Database = cfg.Replication
			expect(t, cfg, "D01", doctor.Pass)
		})
	}
}

// The server says of a role that is not there, or may not log in, what it says of a
// pg_hba.conf that refuses.
func TestD01_NoLogin(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	cfg.Database = as(cfg.Database, "nobody of that name")
	expect(t, cfg, "D01", doctor.Fail, `there is no role "nobody of that name"`, "grants print --part roles")
	role := newRole(t, url, "")
	execute(t, url, "alter role "+pgx.Identifier{role}.Sanitize()+" nologin")
	cfg.Database = as(cfg.Database, role)
	mend(t, url, expect(t, cfg, "D01", doctor.Fail, "or it may not log in"))
	expect(t, cfg, "D01", doctor.Pass)
}
