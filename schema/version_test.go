package schema_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/schema"
)

func TestVersion_IsTheNewestMigration(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(os.DirFS("migrations"), "[0-9]*.sql")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != int(schema.Version) {
		t.Errorf("version is %d with %d migrations", schema.Version, len(files))
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	conn := connect(t, url)

	check := func(name string) *schema.VersionError {
		t.Helper()
		err := schema.Check(t.Context(), conn, name)
		if err == nil {
			return nil
		}
		wrong := new(schema.VersionError)
		if !errors.As(err, &wrong) {
			t.Fatalf("got %v, want a VersionError", err)
		}
		return wrong
	}

	missing := check("outbox")
	if missing == nil || missing.Have != 0 || missing.Want != schema.Version {
		t.Fatalf("without a schema: %v", missing)
	}
	for _, want := range []string{`"outbox"`, "version 0", "version 1", "outbox-relay migrate up"} {
		if !strings.Contains(missing.Error(), want) {
			t.Errorf("%q does not say %q", missing, want)
		}
	}

	exec(t, conn, "create schema outbox")
	if wrong := check("outbox"); wrong == nil || wrong.Have != 0 {
		t.Errorf("without tables: %v", wrong)
	}

	migrate(t, url, standard)
	if wrong := check("outbox"); wrong != nil {
		t.Error(wrong)
	}
	if wrong := check("elsewhere"); wrong == nil || wrong.Schema != "elsewhere" {
		t.Errorf("another schema: %v", wrong)
	}

	// A program that was taken back to its last version still works.
	exec(t, conn, "insert into outbox.schema_version values (999)")
	if wrong := check("outbox"); wrong != nil {
		t.Error(wrong)
	}
}

func TestVersionError_NamesBothVersions(t *testing.T) {
	t.Parallel()
	err := &schema.VersionError{Schema: "Sales", Have: 3, Want: 7}
	want := `schema "Sales" has version 3, this program needs version 7; ` +
		"run `outbox-relay migrate up`, or `outbox-relay migrate print` to apply it by hand"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestCheck_OtherErrorsKeepTheirCode(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Migrated(t))
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "create role check_nobody")
	exec(t, conn, "set local role check_nobody")
	if err := schema.Check(t.Context(), tx, "outbox"); refused(err).Code != "42501" {
		t.Errorf("got %v, want SQLSTATE 42501", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}
