package doctor_test

import (
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// An administrator runs the checks in a database where others may make
// functions, among them such that fit a call better than the server's own.
func TestRun_CallsNoFunctionOfOthers(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	const body = `language plpgsql as 'begin raise exception ''called''; end'`
	execute(t, url,
		"create table public.other (id int)", "alter publication outbox_relay add table public.other",
		"create function public.format(text, name, name) returns text "+body,
		"create function public.to_jsonb(pg_catalog.pg_replication_slots) returns jsonb "+body,
		"create function public.has_schema_privilege(text, oid, text) returns bool "+body,
	)
	expect(t, newConfig(t, url), "D51", doctor.Warn, "public.other")
}
