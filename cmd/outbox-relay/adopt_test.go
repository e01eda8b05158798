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
		insert into outbox.messages (key, queue, payload, created_at) values ('of-the-dump', 'orders', '{}', '2026-03-01 09:00Z');
		insert into outbox.relays (slot, system_identifier, timeline, confirmed_lsn, reconciled_at, closed_at, updated_at)
		values ('`+r.settings["RELAY_SLOT"]+`', 4711, 3, '0/1', now(), now(), now() - interval '1 hour')`); err != nil {
		t.Fatal(err)
	}
	expectCode(t, r.settings, exitStopped, []string{"adopt"},
		"system 4711 on timeline 3", "on timeline 1", "2 messages without outcome, 4 deferred messages", "sends nothing here", "--yes",
		"the relay's last record", "of these messages w", " written later", "QUEUE", "2026-03-01T09:00:00Z", "the server of before")
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
	var without, deferred, after int64
	for _, q := range document.Queues {
		without, deferred, after = without+q.WithoutOutcome, deferred+q.Deferred, after+q.AfterRecord
		if q.WithoutOutcome > 0 && (q.Oldest == nil || q.Newest == nil || q.Oldest.After(*q.Newest)) {
			t.Errorf("queue %s: from %v to %v", q.Queue, q.Oldest, q.Newest)
		}
	}
	if without != 2 || deferred != 4 || after == 0 || after >= 6 || document.AfterRecord.Count != after || document.LastRecord == nil {
		t.Errorf("%d, %d and %d by queue: %+v", without, deferred, after, document.Adoption)
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
