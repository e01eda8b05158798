package scenario_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// APP-02: whatever way a row gets into the table, it is one message; what
// inserts nothing publishes nothing, and a rewrite of the table does neither.
func TestAPP02_UnusualWaysToInsert(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	w.Start()
	ctx := context.Background()
	_, err := w.Conn.PgConn().CopyFrom(ctx, copyRows(500), `copy outbox.messages (key, queue, payload) from stdin`)
	if err != nil {
		t.Fatal(err)
	}
	w.Committed(scenario.Batch("copy", 500)...)
	w.Exec(`insert into outbox.messages (key, queue, payload) values ('copy-0', 'orders', '{}'), ('once', 'orders', '{}') on conflict (key) do nothing`)
	w.Committed(scenario.Message{Key: "once"})
	w.Exec(`create view outbox_view as select key, queue, payload from outbox.messages`)
	w.Exec(`insert into outbox_view values ('view', 'orders', '{}')`)
	w.Committed(scenario.Message{Key: "view"})
	w.Exec(`select outbox.enqueue(key => 'function', queue => 'orders', payload => '{}')`)
	w.Committed(scenario.Message{Key: "function"})
	w.Exec(`insert into outbox.messages (key, queue, payload) select 'select-' || i, 'orders', '{}' from generate_series(0, 49) i`)
	w.Committed(scenario.Batch("select", 50)...)
	w.Exec(`create table shop (id int primary key)`)
	w.Exec(`create table item (id int primary key, shop int references shop on delete cascade)`)
	w.Exec(`create function tell() returns trigger language plpgsql security definer set search_path = '' as $$ begin
		insert into outbox.messages (key, queue, payload) values (tg_op || '-item-' || coalesce(new.id, old.id), 'orders', '{}'); return null; end $$`)
	w.Exec(`create trigger tell after insert or delete on item for each row execute function tell()`)
	w.Exec(`insert into shop values (1)`)
	w.Exec(`insert into item values (1, 1)`)
	w.Exec(`delete from shop`) // and by the cascade its item
	w.Committed(scenario.Message{Key: "INSERT-item-1"}, scenario.Message{Key: "DELETE-item-1"})
	if _, err := w.Conn.Exec(ctx, `insert into outbox.messages (key, queue, payload) values ('once', 'orders', '{}')
		on conflict (key) do update set payload = '{"changed": true}'`); err == nil {
		t.Error("a message was changed")
	}
	if w.Conn.PgConn().ParameterStatus("server_version") >= "15" {
		w.Exec(`merge into outbox.messages m using (values ('once'), ('merged')) v (key) on m.key = v.key
			when not matched then insert (key, queue, payload) values (v.key, 'orders', '{}')`)
		w.Committed(scenario.Message{Key: "merged"})
	}
	w.Exec(`vacuum full outbox.messages`)
	w.Insert(scenario.Message{Key: "after"})
	w.Exec(`alter table outbox.messages alter priority type int, alter delay_seconds type bigint`)
	w.Insert(scenario.Message{Key: "after-another"})
	w.Settle()
	if got, want := len(w.Queue.Accepted("")), len(w.Keys()); got != want {
		t.Errorf("%d messages accepted, want %d", got, want)
	}
}

// APP-03: a row that is deleted before it is dispatched was committed, so the
// stream shows it, and it is delivered; marking it is no error.
func TestAPP03_DeletedBeforeDispatch(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	r := w.Start()
	r.AwaitLog("session began")
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	w.Exec(`with gone as (insert into outbox.messages (key, queue, payload) values ('same', 'orders', '{}') returning id)
		select id from gone`)
	w.Exec(`insert into outbox.messages (key, queue, payload) values ('other', 'orders', '{}')`)
	w.Exec(`delete from outbox.messages`)
	w.Committed(scenario.Message{Key: "same"}, scenario.Message{Key: "other"})
	tx, err := w.Conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	within := scenario.Message{Key: "within"}
	if err := scenario.Write(t.Context(), tx, within); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `delete from outbox.messages where key = 'within'`); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Committed(within)
	r = w.Start()
	w.AwaitAccepted()
	hang := w.Fault(emulator.Fault{Key: "flying", Hang: true})
	w.Insert(scenario.Message{Key: "flying"})
	w.AwaitRequest("flying")
	w.Exec(`delete from outbox.messages where key = 'flying'`)
	w.Queue.RemoveFault(hang)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	w.Start()
	w.AwaitAccepted()
	w.AwaitSlot()
	w.NoPhantom()
	w.Same()
}

// APP-04: the same key twice, without the unique constraint: both rows get an
// outcome, and the second is not swallowed.
func TestAPP04_SameKeyTwice(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_RETRY_MIN": "10ms", "RELAY_RETRY_MAX": "50ms", "RELAY_CONFLICT_ATTEMPTS": "3"})
	w.Exec(`alter table outbox.messages drop constraint messages_key_unique`)
	w.Exec(`insert into outbox.messages (key, queue, payload) values ('equal', 'orders', '{"n":1}')`)
	w.Exec(`insert into outbox.messages (key, queue, payload) values ('equal', 'orders', '{"n":1}')`)
	w.Exec(`insert into outbox.messages (key, queue, payload) values ('other', 'orders', '{"n":1}')`)
	w.Exec(`insert into outbox.messages (key, queue, payload) values ('other', 'orders', '{"n":2}')`)
	w.Start()
	pgtest.Eventually(t, scenario.Patience, func() error {
		dispatched, dead := w.Count(`select count(*) from outbox.dispatched`), w.Count(`select count(*) from outbox.dead_letters where reason = 'conflict'`)
		if dispatched != 3 || dead != 1 {
			return fmt.Errorf("%d dispatched and %d dead letters, want 3 and 1", dispatched, dead)
		}
		return nil
	})
	w.AwaitSlot()
}

// APP-07: a NULL where none was expected becomes a dead letter with its reason,
// without a request; the messages around it go on.
func TestAPP07_MissingKeyQueueOrPayload(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	w.Exec(`alter table outbox.messages alter key drop not null, alter queue drop not null, alter payload drop not null`)
	w.Exec(`do $$ declare c text; begin
		for c in select conname from pg_constraint where conrelid = 'outbox.messages'::regclass and contype = 'c' loop
			execute format('alter table outbox.messages drop constraint %I', c);
		end loop; end $$`)
	w.Insert(scenario.Message{Key: "before", OrderingKey: "a"})
	bad := []string{
		`(null, 'orders', '{}')`, `('', 'orders', '{}')`, `('no-queue', null, '{}')`, `('no-payload', 'orders', null)`,
		`('null', 'orders', 'null')`, `('text', 'orders', '""')`, `('list', 'orders', '[]')`, `('two words', 'orders', '{}')`,
	}
	for _, values := range bad {
		w.Exec(`insert into outbox.messages (key, queue, payload) values ` + values)
	}
	w.Insert(scenario.Message{Key: "empty", OrderingKey: "a", Payload: "{}"}, scenario.Message{Key: "after", OrderingKey: "a"})
	w.Start()
	w.Settle()
	pgtest.Eventually(t, scenario.Patience, func() error {
		if dead := w.Count(`select count(*) from outbox.dead_letters where reason = 'refused' and attempts = 0 and last_error <> ''`); dead != int64(len(bad)) {
			return fmt.Errorf("%d dead letters, want %d", dead, len(bad))
		}
		return nil
	})
}
