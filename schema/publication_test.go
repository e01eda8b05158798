package schema_test

import (
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// SCH-09: a table of the application's without a key can still be updated and
// deleted from; the publication holds the messages and their inserts only.
func TestPublication_BreaksNoOtherTable(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	conn := connect(t, url)
	exec(t, conn, `create table legacy (a int); insert into legacy values (0), (0)`)
	migrate(t, url, standard)
	exec(t, conn, `update legacy set a = 1`)
	exec(t, conn, `delete from legacy`)

	got := query[string](t, conn, `select string_agg(concat_ws(' ', pubname, schemaname, tablename), ', ') from pg_publication_tables`)
	if want := "outbox_relay outbox messages"; got != want {
		t.Errorf("published tables: %s, want %s", got, want)
	}
	got = query[string](t, conn, `select concat_ws(' ', pubinsert, pubupdate, pubdelete, pubtruncate, puballtables, pubviaroot) from pg_publication`)
	if want := "t f f f f t"; got != want {
		t.Errorf("insert, update, delete, truncate, all tables, via root: %s, want %s", got, want)
	}
	// The messages themselves can be deleted too.
	exec(t, conn, `select outbox.enqueue('k', 'q', '{}'); delete from outbox.messages`)
}

// SCH-04: whoever makes a slot after the migration finds the publication in its
// past, whatever was written in between.
func TestPublication_IsThereBeforeAnySlot(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	migrate(t, url, standard)
	conn := connect(t, url)
	if n := query[int](t, conn, `select count(*) from pg_replication_slots where database = current_database()`); n != 0 {
		t.Errorf("the migration left %d slots", n)
	}
	exec(t, conn, `select pg_create_logical_replication_slot('before_' || current_database(), 'pgoutput')`)
	exec(t, conn, `select outbox.enqueue('k', 'q', '{}'); insert into outbox.dispatched (message_id, attempts) values (1, 1);
		insert into outbox.relays (slot) values ('s'); delete from outbox.messages`)
	got := query[string](t, conn, `select string_agg(chr(get_byte(data, 0)), '') from pg_logical_slot_get_binary_changes(
		'before_' || current_database(), null, null, 'proto_version', '1', 'publication_names', 'outbox_relay')`)
	// Begin, Relation, Insert, Commit of one transaction. What the relay writes
	// and what is deleted does not come back; empty transactions are only
	// skipped from 15 on.
	if want := "BRIC"; got != want {
		t.Errorf("the slot gives %s, want %s", got, want)
	}
}
