package main

import (
	"encoding/json"
	"testing"
)

func TestAdopt_ShowsFirstAndActsWithYes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := fill(t, r)
	expectCode(t, r.settings, exitStopped, []string{"adopt"}, "none on record", "the record fits")
	if _, err := conn.Exec(t.Context(), `
		insert into outbox.messages (key, queue, payload) values ('new', 'orders', '{}');
		insert into outbox.relays (slot, system_identifier, timeline, confirmed_lsn, reconciled_at, closed_at)
		values ('`+r.settings["RELAY_SLOT"]+`', 4711, 3, '0/1', now(), now())`); err != nil {
		t.Fatal(err)
	}
	expectCode(t, r.settings, exitStopped, []string{"adopt"},
		"system 4711 on timeline 3", "on timeline 1", "1 message without outcome, 4 deferred messages", "sends nothing here", "--yes")
	const untouched = `relays where system_identifier = 4711 and timeline = 3 and adopted_at is null`
	if rows(t, conn, untouched) != 1 {
		t.Error("showing has changed the record")
	}

	got := expectCode(t, r.settings, exitStopped, []string{"adopt", "--yes", "--json"})
	var document adoption
	if err := json.Unmarshal([]byte(got.out), &document); err != nil {
		t.Fatal(err)
	}
	if !document.Done || !document.Held || document.KnownSystem != "4711" || document.SchemaVersion != 1 {
		t.Errorf("document is %+v", document)
	}
	const adopted = `relays where system_identifier = (select system_identifier from pg_control_system()) and timeline = 1
		and adopted_at is not null and confirmed_lsn is null and reconciled_at is null and closed_at is null`
	if rows(t, conn, adopted) != 1 {
		t.Error("the server is not adopted")
	}
	expectCode(t, r.settings, exitStopped, []string{"adopt", "--yes"}, "adopted already")
}

func TestAdopt_OfAnOlderHistoryKeepsThePosition(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := fill(t, r)
	if _, err := conn.Exec(t.Context(), `
		insert into outbox.relays (slot, system_identifier, timeline, confirmed_lsn, reconciled_at)
		select '`+r.settings["RELAY_SLOT"]+`', system_identifier, 9, '0/1', now() from pg_control_system()`); err != nil {
		t.Fatal(err)
	}
	expectCode(t, r.settings, exitStopped, []string{"adopt"}, "on timeline 9", "sends nothing here")
	expectCode(t, r.settings, exitStopped, []string{"adopt", "--yes"}, "adopted; a relay that waits goes on within seconds")
	const adopted = `relays where timeline = 1 and adopted_at is not null and confirmed_lsn = '0/1' and reconciled_at is not null`
	if rows(t, conn, adopted) != 1 {
		t.Error("the server is not adopted, or its position is forgotten")
	}
}
