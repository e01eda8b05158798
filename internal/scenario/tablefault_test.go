package scenario_test

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap/zapcore"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
	"github.com/outbox-relay/outbox-relay/schema"
)

// Somebody does something to the table of messages.

// swap puts an empty table in the place of messages; docs/operations.md has it.
const swap = `begin;
lock table outbox.messages in access exclusive mode;
do $$
declare
	status text := pg_get_viewdef('outbox.message_status');
begin
	alter table outbox.messages rename to messages_old;
	alter table outbox.messages_old rename constraint messages_pkey to messages_old_pkey;
	alter table outbox.messages_old rename constraint messages_key_unique to messages_old_key_unique;
	create table outbox.messages (like outbox.messages_old including all);
	alter table outbox.messages rename constraint messages_key_key to messages_key_unique;
	create trigger messages_never_updated before update on outbox.messages
		for each row execute function outbox.refuse_update();
	execute 'create or replace view outbox.message_status as ' || status;
	perform setval(pg_get_serial_sequence('outbox.messages', 'id'), (select coalesce(max(id), 0) + 1 from outbox.messages_old));
	alter publication outbox_relay add table outbox.messages;
end $$;
commit;
`

// The table is swapped by a rename, as the documentation says: the stream goes
// on with the new one. What the old one has without outcome stays there, so it
// is swapped at a quiet moment.
func TestTableFault_SwappedByTheBook(t *testing.T) {
	t.Parallel()
	if docs, err := os.ReadFile("../../docs/operations.md"); err != nil || !strings.Contains(string(docs), swap) {
		t.Errorf("docs/operations.md does not have this swap: %v", err)
	}
	w := watchful(scenario.New(t))
	r := w.Start()
	r.AwaitLog("session began")
	stop := w.Writers(3)
	awaitLife(t, w, "before")
	stop()
	w.Settle()
	script(t, w, swap)
	stop = w.Writers(3)
	awaitLife(t, w, "after")
	script(t, w, `drop table outbox.messages_old`)
	w.Exec(`select outbox.enqueue('by-function', 'orders', '{}')`)
	w.Committed(scenario.Message{Key: "by-function"})
	awaitLife(t, w, "without-the-old-one")
	stop()
	w.AwaitAccepted()
	w.AwaitSlot()
	w.NoPhantom()
	w.Same()
	doctorSays(t, w, "D20", "pass")
	doctorSays(t, w, "D22", "pass")
	if n := times(r, recovered); n != 0 {
		t.Error("messages had to be recovered")
	}
}

// The table is swapped without a thought for the publication, which goes with
// the old one: messages of the new one are found in it. The old table's sequence
// goes as well.
func TestTableFault_SwappedWithoutThePublication(t *testing.T) {
	t.Parallel()
	w := watchful(scenario.New(t))
	r := w.Start()
	r.AwaitLog("session began")
	awaitLife(t, w, "before")
	w.AwaitMarked()
	script(t, w, strings.Replace(swap, "alter publication outbox_relay add table outbox.messages;", "", 1)+`
		drop table outbox.messages_old`)
	stop := w.Writers(2)
	w.Insert(scenario.Message{Key: "in-the-new-table"})
	loud(t, r, zapcore.ErrorLevel, "messages may not come", `add table "outbox"."messages"`)
	loud(t, r, zapcore.ErrorLevel, recovered)
	w.AwaitRequest("in-the-new-table")
	repair := doctorSays(t, w, "D20", "fail", "does not contain")
	if err := r.Alive(); err != nil {
		t.Fatal(err)
	}
	mend(t, w, repair)
	awaitLife(t, w, "after")
	stop()
	w.AwaitAccepted()
	w.AwaitSlot()
	w.NoPhantom()
	w.Same()
}

// The numbers of messages begin at 1 again, where others have outcomes already.
// What the stream shows is sent; what only the table has would be taken for an
// older message.
func TestTableFault_NumbersBeginAgain(t *testing.T) {
	t.Parallel()
	w := watchful(scenario.New(t))
	r := w.Start()
	r.AwaitLog("session began")
	w.Insert(scenario.Batch("m", 20, "a", "b", "")...)
	w.Settle()
	doctorSays(t, w, "D22", "pass")
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	w.Exec(`truncate outbox.messages restart identity`)
	r = w.Start()
	r.AwaitLog("session began")
	w.Insert(scenario.Batch("n", 5, "a", "")...)
	w.AwaitRequest("n-4")
	loud(t, r, zapcore.ErrorLevel, "numbers of messages begin again: the sweep takes new ones for old ones; let the identity go on above the highest number")
	repair := doctorSays(t, w, "D22", "fail", "begin again")
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	mend(t, w, repair)
	w.Start()
	w.Insert(scenario.Batch("o", 5, "a", "")...)
	settleApart(w)
	doctorSays(t, w, "D22", "pass")
}

// A table that inherits from messages: its rows are among those of messages, and
// the stream shows them under another name, or not at all.
func TestTableFault_ChildTable(t *testing.T) {
	t.Parallel()
	w := watchful(scenario.New(t))
	r := w.Start()
	r.AwaitLog("session began")
	stop := w.Writers(2)
	awaitLife(t, w, "before")
	w.Exec(`create table outbox.more () inherits (outbox.messages)`)
	w.Exec(`insert into outbox.more (id, key, queue, payload) values (1000000, 'in-the-child', 'orders', '{"key":"in-the-child"}')`)
	w.Committed(scenario.Message{Key: "in-the-child"})
	loud(t, r, zapcore.ErrorLevel, "messages may not come", `"outbox"."more" inherits from "outbox"."messages"`, "no inherit")
	loud(t, r, zapcore.ErrorLevel, recovered)
	w.AwaitRequest("in-the-child")
	repair := doctorSays(t, w, "D20", "fail", "more", "inherits")
	p := relaybin.Run(t, w.Env, "run")
	if code, err := p.Wait(t.Context()); err != nil || code == 0 {
		t.Errorf("another relay ended with %d, %v", code, err)
	}
	w.AwaitMarked()
	mend(t, w, repair)
	loud(t, r, zapcore.InfoLevel, "all is well again")
	stop()
	w.AwaitAccepted()
	w.AwaitSlot()
	w.NoPhantom()
	w.Same()
	doctorSays(t, w, "D20", "pass")
}

// The table of messages becomes a partition of another one. From Postgres 17 on
// the server refuses that; before, the stream goes on.
func TestTableFault_BecomesAPartition(t *testing.T) {
	t.Parallel()
	w := watchful(scenario.New(t))
	r := w.Start()
	r.AwaitLog("session began")
	stop := w.Writers(2)
	awaitLife(t, w, "before")
	w.Exec(`create table public.everything (like outbox.messages including defaults) partition by range (created_at)`)
	_, err := w.Conn.Exec(t.Context(), `alter table public.everything attach partition outbox.messages default`)
	if refused := err != nil; refused != (version(w) >= 170000) {
		t.Fatalf("attach: %v", err)
	}
	if err == nil {
		w.Exec(`insert into public.everything (id, key, queue, payload) values (1000000, 'through-the-root', 'orders', '{"key":"through-the-root"}')`)
		w.Committed(scenario.Message{Key: "through-the-root"})
	}
	awaitLife(t, w, "after")
	stop()
	w.Settle()
	doctorSays(t, w, "D20", "pass")
	if n := times(r, recovered) + times(r, "messages may not come"); n != 0 {
		t.Error("the stream did not show everything")
	}
}

// SCH-06: a partitioned table of messages is read under the name of the table,
// also what goes into a partition that was made later; otherwise the relay does
// not start.
func TestSCH06_Partitioned(t *testing.T) {
	t.Parallel()
	w := watchful(scenario.New(t))
	script(t, w, `
		drop view outbox.message_status;
		drop table outbox.messages;
		create table outbox.messages (id bigint generated by default as identity, created_at timestamptz not null default now(),
			deliver_at timestamptz, delay_seconds integer, priority integer, key text not null, queue text not null,
			ordering_key text, payload jsonb not null, headers jsonb, primary key (id, created_at)) partition by range (created_at);
		create table outbox.messages_old partition of outbox.messages for values from (minvalue) to ('2020-01-01');
		create table outbox.messages_now partition of outbox.messages for values from ('2020-01-01') to ('3000-01-01');
		alter publication outbox_relay set (publish_via_partition_root = false);
		alter publication outbox_relay add table outbox.messages`)
	w.Insert(scenario.Message{Key: "before", OrderingKey: "a"})
	p := relaybin.Run(t, w.Env, "run")
	if code, err := p.Wait(t.Context()); err != nil || code == 0 || !strings.Contains(p.Log().Text(), "publish_via_partition_root = true") {
		t.Fatalf("the relay ended with %d, %v: %s", code, err, p.Log().Text())
	}
	mend(t, w, doctorSays(t, w, "D20", "fail", "publish_via_partition_root"))
	r := w.Start()
	r.AwaitLog("session began")
	w.Insert(scenario.Batch("now", 20, "a", "b", "")...)
	w.AwaitAccepted()
	w.Exec(`create table outbox.messages_late partition of outbox.messages for values from ('3000-01-01') to (maxvalue)`)
	w.Exec(`insert into outbox.messages (key, queue, payload, created_at) values ('late', 'orders', '{}', '3000-02-01')`)
	w.Committed(scenario.Message{Key: "late"})
	w.Settle()
	doctorSays(t, w, "D20", "pass")
	if n := times(r, recovered); n != 0 {
		t.Error("messages had to be recovered")
	}
}

// asRole lets the relays to come work as a role with the printed rights and no
// others.
func asRole(t *testing.T, w *scenario.World) (role string) {
	t.Helper()
	role = w.Env["RELAY_SLOT"]
	address, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	var grants strings.Builder
	names := schema.GrantsConfig{Schema: "outbox", Database: strings.TrimPrefix(address.Path, "/"), Relay: role}
	if err := schema.Grants(&grants, names); err != nil {
		t.Fatal(err)
	}
	script(t, w, grants.String())
	quoted := pgx.Identifier{role}.Sanitize()
	t.Cleanup(func() { script(t, w, "drop owned by "+quoted+"; drop role "+quoted) })
	address.User = url.User(role)
	w.Env["DATABASE_URL"] = address.String()
	return quoted
}

// Row security hides messages from the role of the relay. What is deferred and
// cannot be seen looks like a message that was withdrawn, and must not be taken
// for one.
func TestTableFault_RowSecurity(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct{ harm, mend string }{
		"no policy":           {"", ""}, // the doctor mends it
		"a policy hides some": {"create policy few on outbox.messages using (key not like 'm-1%')", "alter role %s bypassrls"},
		"a policy hides none": {"create policy all_of_them on outbox.messages using (true)", "alter role %s bypassrls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := brisk(watchful(scenario.New(t)))
			role := asRole(t, w)
			down := w.Fault(emulator.Fault{Route: "queue.publish", Status: 503})
			r := w.Start()
			r.AwaitLog("session began")
			w.Insert(scenario.Batch("m", 20, "a", "b", "")...)
			awaitDeferred(w, t, 20, "true")
			script(t, w, `alter table outbox.messages enable row level security;`+fault.harm)
			w.Queue.RemoveFault(down)
			w.Insert(scenario.Batch("n", 5, "a", "b", "")...)
			loud(t, r, zapcore.ErrorLevel, "messages may not come", "row security", `"outbox"."messages"`, "disable row level security")
			repair := doctorSays(t, w, "D26", "fail", "row security")
			scenario.Throughout(t, time.Second, func() error {
				if n := w.Count(`select count(*) from outbox.messages m where not exists (select from outbox.dispatched where message_id = m.id)
					and not exists (select from outbox.deferred where message_id = m.id)`); n > 5 {
					return fmt.Errorf("%d messages were taken for withdrawn", n)
				}
				return r.Alive()
			})
			if fault.mend != "" {
				repair = fmt.Sprintf(fault.mend, role)
			}
			mend(t, w, repair)
			loud(t, r, zapcore.InfoLevel, "all is well again")
			w.Insert(scenario.Batch("o", 5, "a", "b", "")...)
			w.Settle()
			noneLeft(w, t)
			doctorSays(t, w, "D26", "pass")
		})
	}
}

// SCH-11: numbers that JSON cannot hold, in columns that are none of the
// relay's business.
func TestSCH11_NotANumber(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	w.Exec(`alter table outbox.messages add score float8, add amount numeric`)
	insert := func() {
		for _, number := range []string{"1.5", "NaN", "Infinity", "-Infinity", "2"} {
			key := fmt.Sprintf("m-%d-%s", len(w.Keys()), number)
			w.Exec(`insert into outbox.messages (key, queue, payload, score, amount) values ($1, 'orders', '{}', $2::text::float8, $2::text::numeric)`, key, number)
			w.Committed(scenario.Message{Key: key})
		}
	}
	insert() // from the table
	r := w.Start()
	r.AwaitLog("session began")
	insert() // from the stream
	w.Settle()
}

// SCH-12: a payload of bytes would arrive as their text. The relay does not
// start with such a column, and what one that runs is given becomes a dead
// letter, which can be sent after the repair.
func TestSCH12_BinaryPayload(t *testing.T) {
	t.Parallel()
	w := watchful(scenario.New(t))
	r := w.Start()
	r.AwaitLog("session began")
	awaitLife(t, w, "before")
	script(t, w, `alter table outbox.messages drop constraint messages_payload_object, drop constraint messages_payload_size,
		alter payload type bytea using convert_to(payload::text, 'UTF8')`)
	w.Exec(`insert into outbox.messages (key, queue, payload) values ('bytes', 'orders', '\x7b7d')`)
	loud(t, r, zapcore.ErrorLevel, "dead letter", "bytes")
	loud(t, r, zapcore.ErrorLevel, "messages may not come", "payload", "bytea", "jsonb")
	doctorSays(t, w, "D20", "fail", "payload", "bytea")
	if n := w.Requests("bytes"); n != 0 {
		t.Error("the text of the bytes was sent")
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	p := relaybin.Run(t, w.Env, "run")
	if code, err := p.Wait(t.Context()); err != nil || code == 0 || !strings.Contains(p.Log().Text(), "bytea") {
		t.Errorf("a relay that starts ended with %d, %v: %s", code, err, p.Log().Text())
	}
	w.Exec(`alter table outbox.messages alter payload type jsonb using convert_from(payload, 'UTF8')::jsonb`)
	w.Start()
	verb(t, w, 0, "dead-letters", "redrive", "--key", "bytes", "--yes")
	w.Committed(scenario.Message{Key: "bytes"})
	w.Settle()
}

// SCH-14: no primary key, and a publication of everything. Outcomes are beside
// the messages, so nothing of this stops them or repeats them; only the removal
// of old ones fails, and says so.
func TestSCH14_NoPrimaryKey(t *testing.T) {
	t.Parallel()
	w := watchful(scenario.New(t)).With(map[string]string{"RELAY_PUBLICATION": "own", "RELAY_RETENTION": "1s"})
	script(t, w, `alter table outbox.messages drop constraint messages_pkey; create publication own for table outbox.messages`)
	r := w.Start()
	loud(t, r, zapcore.WarnLevel, "publication or table is not as it should be", "publishes more than inserts")
	doctorSays(t, w, "D21", "warn", "more than inserts")
	w.Insert(scenario.Batch("m", 10, "a")...)
	w.Settle()
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := w.Count(`select count(*) from outbox.dispatched where dispatched_at < now() - interval '1 s'`); n < 10 {
			return fmt.Errorf("%d of 10 are old enough to be removed", n)
		}
		return nil
	})
	r = w.Start()
	awaitLife(t, w, "after")
	loud(t, r, zapcore.WarnLevel, "retention failed", "replica identity")
	w.Settle()
	for _, m := range w.Keys() {
		if n := w.Requests(m.Key); n != 1 {
			t.Errorf("%d requests for %s", n, m.Key)
		}
	}
}
