package doctor_test

import (
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func TestD43_NotPinned(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	expect(t, cfg, "D43", doctor.Pass)
	execute(t, url, "alter function outbox.claim(text, text, interval) reset search_path")
	expect(t, cfg, "D43", doctor.Warn, "outbox.claim(")
	execute(t, url, `create function outbox."send all"(a int default 1) returns int language sql security definer as 'select 1'`)
	mend(t, url, expect(t, cfg, "D43", doctor.Fail, `outbox."send all"(a integer)`, "search_path"))
	expect(t, cfg, "D43", doctor.Pass)
}

func TestD44_ForEverybody(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]string{
		"function": `create function outbox.send(text) returns int language sql security definer set search_path = pg_catalog as 'select 1'`,
		"schema":   `grant create on schema outbox to public`,
		"table":    `grant insert, select on outbox.dispatched to public`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Migrated(t)
			cfg := newConfig(t, url)
			expect(t, cfg, "D44", doctor.Pass)
			execute(t, url, harm)
			mend(t, url, expect(t, cfg, "D44", doctor.Fail, "every role"))
			expect(t, cfg, "D44", doctor.Pass)
		})
	}
}
