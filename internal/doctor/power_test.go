package doctor_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func TestD05_TooMuchPower(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	cfg := newConfig(t, url)
	expect(t, cfg, "D05", doctor.Warn, "superuser", "grants print")
	role := newRole(t, url, "createdb createrole")
	cfg.Database = as(cfg.Database, role)
	r := expect(t, cfg, "D05", doctor.Warn, "createrole, createdb")
	if r.Safe {
		t.Error("a right is taken away without a person")
	}
	mend(t, url, r)
	expect(t, cfg, "D05", doctor.Pass)
}

// An administrator looks for the relay's role: what counts are the rights of that
// role, not those of the connection.
func TestRun_ForAnotherRole(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	cfg.Role = "no_such_role"
	expect(t, cfg, "D28", doctor.Fail, "there is no role", "grants print")
	cfg.Role = newRole(t, url, "")
	expect(t, cfg, "D05", doctor.Pass)
	for _, id := range []string{"D04", "D28"} {
		r := expect(t, cfg, id, doctor.Fail, pgx.Identifier{cfg.Role}.Sanitize())
		if !r.Safe {
			t.Errorf("%s is not safe to apply", id)
		}
		mend(t, url, r)
		expect(t, cfg, id, doctor.Pass)
	}
}
