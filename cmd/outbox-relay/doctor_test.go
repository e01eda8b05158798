package main

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// doctor --apply shows first, and with --yes mends, writes down what it did, and
// looks again.
func TestDoctor_Apply(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	expectCode(t, r.settings, exitUsage, []string{"doctor", "--yes"}, "--apply")
	expectCode(t, r.settings, exitStopped, []string{"doctor", "--apply"}, "no fault that is safe to mend by SQL")

	sql(t, r.url, "drop publication outbox_relay", "grant select on outbox.messages to public")
	listed := expectCode(t, r.settings, exitDoctorFailed, []string{"doctor", "--apply"},
		"D21  Publication\n  create publication", "nothing was changed; with --yes it is done")
	if strings.Contains(listed.out, "revoke") {
		t.Errorf("lists what is not safe: %s", listed.out)
	}
	expectCode(t, r.settings, exitDoctorFailed, []string{"doctor"}, "fail  D21")

	// The other fault needs a person.
	done := expectCode(t, r.settings, exitDoctorFailed, []string{"doctor", "--apply", "--yes"},
		"  done    create publication", "pass  D21", "fail  D44")
	for _, text := range []string{`"msg":"repair applied"`, `"check":"D21"`, `"sql":"create publication`, `"role":"postgres"`} {
		if !strings.Contains(done.err, text) {
			t.Errorf("the log lacks %s: %s", text, done.err)
		}
	}
	sql(t, r.url, "revoke select on outbox.messages from public")
	expectCode(t, r.settings, exitStopped, []string{"doctor"})

	// There is no slot yet, which is a warning.
	expectCode(t, r.settings, exitDoctorFailed, []string{"doctor", "--strict"}, "warn  D09", "checks warn")
}

// A role that may not mend is told so, in text and in JSON, with what helps.
func TestDoctor_ApplyMayNot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	address, err := url.Parse(r.url)
	if err != nil {
		t.Fatal(err)
	}
	role := "may_not_" + strings.TrimPrefix(address.Path, "/")
	quoted := pgx.Identifier{role}.Sanitize()
	sql(t, r.url, "create role "+quoted+" login replication")
	t.Cleanup(func() { dropRole(t, r.url, quoted) })
	address.User = url.User(role)

	environment := r.with("DATABASE_URL", address.String())
	expectCode(t, environment, exitDoctorFailed, []string{"doctor", "--apply", "--yes"},
		"failed  grant usage on schema", "not run grant select", "permission denied", "set DATABASE_URL to the owner")
	got := expectCode(t, environment, exitDoctorFailed, []string{"doctor", "--apply", "--yes", "--json"})
	var found treatment
	if err := json.Unmarshal([]byte(got.out), &found); err != nil {
		t.Fatal(err)
	}
	if !found.Applied || len(found.Repairs) != 1 || found.Repairs[0].ID != "D28" || found.Repairs[0].Error == "" || found.Report.Failed == 0 {
		t.Errorf("says %s", got.out)
	}

	// An administrator does it for that role.
	expectCode(t, r.settings, exitStopped, []string{"doctor", "--apply", "--yes", "--role", role}, "done    grant usage on schema", "0 failed")
	expectCode(t, environment, exitStopped, []string{"doctor"})
}
