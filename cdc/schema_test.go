package cdc_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/cdc"
)

// SCH-01: columns come and go while messages flow.
func TestSource_FollowsATableThatChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	r.open(s)
	c := r.consume(s, nil)
	r.insert("a")
	r.exec("alter table outbox.messages add column tenant text default 'x'")
	r.insert("b")
	r.exec("begin; alter table outbox.messages add column note jsonb; alter table outbox.messages drop column headers; commit")
	r.exec(`insert into outbox.messages (key, queue, ordering_key, payload, delay_seconds, note)
		values ('c', 'bills', 'o', '{"n": 1}', 7, '{"ignored": true}')`)
	c.wants("a", "b", "c")

	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.rows[2]
	if got.Queue != "bills" || got.OrderingKey != "o" || got.Payload != `{"n": 1}` || got.DelaySeconds.Int32 != 7 || got.Headers != "" {
		t.Errorf("the message after the change is %+v", got)
	}
	if pid := r.holder(); pid == 0 || s.Stats().Sessions != 1 {
		t.Error("the stream was restarted")
	}
}

// SCH-02: a needed column is renamed, with older messages still to come.
func TestSource_StopsBeforeAMessageWithoutANeededColumn(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string][2]string{
		"renamed": {"rename column key to msg_key", "rename column msg_key to key"},
		"dropped": {"drop column payload", "add column payload jsonb not null default '{}'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			// The session waits so long for the release below, and the next one begins so
			// much later.
			const pause = 3 * time.Second
			s := r.source(func(c *cdc.Config) { c.OperatorRetry = pause })
			r.open(s)
			r.close(s)
			r.insert("r1")
			r.exec("alter table outbox.messages " + alter[0])
			r.exec("insert into outbox.messages default values")
			after := r.walEnd()

			r.open(s)
			c := r.consume(s, everything)
			c.wants("r1")
			c.release() // the session lasts until what came before is resolved
			err := c.fails()
			var column *cdc.ColumnError
			if !errors.As(err, &column) || !strings.Contains(alter[0], column.Column) || column.Schema != "outbox" || column.Table != "messages" {
				t.Fatalf("the stream ends with %v, want a ColumnError", err)
			}
			if r.confirmedPast(after) {
				t.Error("the slot passed the message that cannot be read")
			}

			// It is the same at the next session, and that comes after a pause.
			r.exec("alter table outbox.messages " + alter[1])
			begun := time.Now()
			r.open(s)
			if took := time.Since(begun); took < pause*3/4 {
				t.Errorf("opened again after %v, want a pause", took)
			}
			again := r.consume(s, nil)
			if err := again.fails(); !errors.As(err, &column) {
				t.Errorf("the second session ends with %v", err)
			}
			if got := again.keys(); len(got) > 0 {
				t.Errorf("%q came again, although it was resolved", got)
			}
			line := r.logged("stream ended, will be opened again")
			if len(line) != 1 || !strings.Contains(text(line[0]), "outbox-relay slot recreate") {
				t.Errorf("log %v, want one line with the way out", line)
			}

			// The documented recovery: a new slot, and the table.
			r.dropSlot()
			r.open(s)
			if !s.Created() {
				t.Error("Created does not tell of the new slot")
			}
			last := r.consume(s, nil)
			r.insert("r3")
			last.wants("r3")
		})
	}
}

// SCH-03: the publication did not exist when a message was written.
func TestSource_PublicationWasMissingForAWhile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	r.open(s)
	r.close(s)
	r.insert("r1")
	r.exec("drop publication outbox_relay")
	r.insert("r2")
	r.exec("create publication outbox_relay for table outbox.messages with (publish = 'insert')")
	r.insert("r3")

	r.open(s)
	c := r.consume(s, nil)
	if r.version() >= 180000 {
		// From 18 on the server says so and goes on without the message.
		c.has("r3")
		if got := s.Stats().Notices; got == 0 {
			t.Error("no notice counted")
		}
		lines := r.logged("notice of the server")
		if len(lines) == 0 || !strings.Contains(text(lines[0]), "outbox_relay") || !strings.Contains(text(lines[0]), "lsn") {
			t.Errorf("log %v, want the notice with publication and position", lines)
		}
		return
	}
	err := c.fails()
	var gap *cdc.GapError
	if !errors.As(err, &gap) || gap.Publication != "outbox_relay" || gap.Position == "0/0" {
		t.Fatalf("the stream ends with %v, want a GapError", err)
	}
	wantText(t, gap.Hint(), "the slot is older than the publication", "outbox-relay slot recreate", "nothing is lost")
	begun := time.Now()
	r.open(s)
	if took := time.Since(begun); took < 250*time.Millisecond {
		t.Errorf("opened again after %v, want a pause", took)
	}
	if err := r.consume(s, nil).fails(); !errors.As(err, &gap) {
		t.Errorf("the second session ends with %v", err)
	}
	r.dropSlot()
	r.open(s)
	if !s.Created() {
		t.Error("Created does not tell of the new slot")
	}
}

// SCH-05, variants 1 to 3, SCH-06, and more ways in which nothing would come.
func TestSource_Open_RefusesAPublicationThatPublishesNothingOfOurs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		sql  string
		kind error
		hint string
	}{
		"no publication":  {"drop publication outbox_relay", cdc.ErrPublication, `create publication "outbox_relay" for table "outbox"."messages" with (publish = 'insert')`},
		"no tables":       {"alter publication outbox_relay drop table outbox.messages", cdc.ErrPublication, `alter publication "outbox_relay" add table "outbox"."messages"`},
		"another table":   {"alter publication outbox_relay set table public.noise", cdc.ErrPublication, `add table "outbox"."messages"`},
		"only updates":    {"alter publication outbox_relay set (publish = 'update')", cdc.ErrPublication, `set (publish = 'insert')`},
		"a column list":   {"alter publication outbox_relay set table outbox.messages (id, queue)", cdc.ErrPublication, `set table "outbox"."messages"`},
		"no table":        {"drop table outbox.messages", cdc.ErrTable, "migrate"},
		"unlogged":        {"drop publication outbox_relay; alter table outbox.messages set unlogged; create publication outbox_relay for table public.noise", cdc.ErrTable, "set logged"},
		"partitions only": {partitioned, cdc.ErrPublication, "publish_via_partition_root"},
	}
	if newRig(t).version() < 150000 {
		delete(tests, "a column list") // there are none
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for sql := range strings.SplitSeq(test.sql, ";") {
				r.exec(sql)
			}
			s := r.source()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := s.Open(ctx)
			var operator *cdc.OperatorError
			if !errors.As(err, &operator) || !errors.Is(err, test.kind) {
				t.Fatalf("open: %v, want %v", err, test.kind)
			}
			if !strings.Contains(operator.Hint(), test.hint) {
				t.Errorf("hint %q, want %q in it", operator.Hint(), test.hint)
			}
			if s.Problem() == nil {
				t.Error("Problem knows of nothing")
			}
			if value[int](r, "select count(*) from pg_replication_slots where slot_name = $1", r.config.Slot) != 0 {
				t.Error("a slot was made")
			}
		})
	}
}

const partitioned = `drop table outbox.messages;
	create table outbox.messages (id bigint generated always as identity, key text, queue text, ordering_key text, payload jsonb,
		created_at timestamptz default now()) partition by range (created_at);
	create table outbox.messages_all partition of outbox.messages default;
	alter publication outbox_relay add table outbox.messages`

// SCH-06: partitions are fine under the name of the table.
func TestSource_PartitionedTable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for sql := range strings.SplitSeq(partitioned, ";") {
		r.exec(sql)
	}
	r.exec("alter publication outbox_relay set (publish_via_partition_root = true)")
	s := r.source()
	r.open(s)
	c := r.consume(s, nil)
	r.insert("a")
	c.wants("a")
}

// SCH-05, variant 4: the publication is changed under a stream.
func TestSource_NoticesAChangedPublication(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	r.open(s)
	c := r.consume(s, nil)
	r.insert("before")
	c.wants("before")

	r.exec("alter publication outbox_relay drop table outbox.messages")
	r.insert("lost to the stream")
	r.eventually("the loss is noticed", func() bool { return s.Problem() != nil })
	if err := s.Problem(); !errors.Is(err, cdc.ErrPublication) {
		t.Errorf("the problem is %v", err)
	}
	r.eventually("the log has it", func() bool { return len(r.logged("messages may not come")) > 0 })
	lines := r.logged("messages may not come")
	if len(lines) != 1 || !strings.Contains(text(lines[0]), `add table "outbox"."messages"`) {
		t.Errorf("log %v, want one line with the statement", lines)
	}

	r.exec("alter publication outbox_relay add table outbox.messages")
	r.insert("after")
	c.wants("before", "after")
	r.eventually("the cure is noticed", func() bool { return s.Problem() == nil })
}

// A process that had a session waits for the cure; it needs no restart.
func TestSource_Open_WaitsForTheCureOnceItHadASession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	r.open(s)
	r.close(s)
	r.exec("drop publication outbox_relay")
	opened := make(chan error, 1)
	go func() { opened <- s.Open(t.Context()) }()
	r.eventually("the problem is known", func() bool { return errors.Is(s.Problem(), cdc.ErrPublication) })
	r.exec("create publication outbox_relay for table outbox.messages with (publish = 'insert')")
	select {
	case err := <-opened:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("the cure was not noticed")
	}
	if s.Problem() != nil {
		t.Errorf("still a problem: %v", s.Problem())
	}
	if lines := r.logged("stream cannot be opened, will be tried again"); len(lines) != 1 {
		t.Errorf("%d lines about it, want 1", len(lines))
	}
}

// SCH-07: types without a fixed OID, and a label that is new.
func TestSource_UserDefinedTypes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, sql := range []string{
		"create type outbox.queue as enum ('mails', 'bills')",
		"create domain outbox.ord as text check (value <> '')",
		"create type outbox.pair as (a int, b text)",
		"alter table outbox.messages alter queue drop default, alter queue type outbox.queue using queue::outbox.queue, alter ordering_key type outbox.ord, add tags text[], add pair outbox.pair",
	} {
		r.exec(sql)
	}
	s := r.source()
	r.open(s)
	c := r.consume(s, nil)
	r.exec(`insert into outbox.messages (key, queue, ordering_key, tags, pair) values ('a', 'bills', 'o-1', '{x,y}', row(1, 'z'))`)
	r.exec("alter type outbox.queue add value 'new'")
	r.exec(`insert into outbox.messages (key, queue, ordering_key) values ('b', 'new', 'o-2')`)
	c.wants("a", "b")
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, want := range []string{"bills o-1", "new o-2"} {
		if got := c.rows[i].Queue + " " + c.rows[i].OrderingKey; got != want {
			t.Errorf("message %d went to %q, want %q", i, got, want)
		}
	}
}

// SCH-08: every name is quoted wherever it is used.
func TestSource_UnusualNames(t *testing.T) {
	t.Parallel()
	for _, publication := range []string{"MyPub", "my-pub", `it's "quoted", too; drop`, "select"} {
		t.Run(publication, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			schema := "Sales " + publication
			r.config.Schema, r.config.Publication = schema, publication
			r.exec(value[string](r, "select format('alter schema outbox rename to %I', $1::text)", schema))
			r.exec(value[string](r, "select format('alter publication outbox_relay rename to %I', $1::text)", publication))
			s := r.source()
			for i, key := range []string{"first start", "second start"} {
				r.open(s)
				c := r.consume(s, nil)
				r.exec(value[string](r, "select format('insert into %I.messages (key) values (%L)', $1::text, $2::text)", schema, key))
				c.wants(key)
				r.awaitRead(s, uint64(i+1))
				r.close(s)
			}
		})
	}
}

// SCH-13: times that Go cannot hold neither stop the stream nor get lost.
func TestSource_UnrepresentableTimes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	r.open(s)
	c := r.consume(s, nil)
	for _, created := range []string{"infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "20000-01-01 00:00:00+00"} {
		r.exec("insert into outbox.messages (key, created_at, deliver_at) values ($1::text, $1::text::timestamptz, $1::text::timestamptz)", created)
	}
	c.count(4)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, row := range c.rows {
		if !row.CreatedAt.IsZero() {
			t.Errorf("created at %s came as %v", row.Key, row.CreatedAt)
		}
		// A message that is never due must not go out at once.
		if never := row.Key == "infinity" || row.Key[0] == '2'; never != (row.DeliverAt.Year() == 9999) {
			t.Errorf("deliver at %s came as %v", row.Key, row.DeliverAt)
		}
	}
}

// Values are printed in the way that the decoder reads, whatever the database
// and the role are set to.
func TestSource_PinsItsSettings(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	database := r.parse(r.url).Database
	for _, setting := range []string{
		"DateStyle = 'German'", "TimeZone = 'Asia/Kathmandu'", "search_path = 'nowhere'", "statement_timeout = '2s'",
		"lock_timeout = '1ms'", "idle_session_timeout = '50ms'", "bytea_output = 'escape'", "default_transaction_isolation = 'serializable'",
	} {
		r.exec("alter database " + database + " set " + setting)
	}
	defer r.exec("alter database " + database + " reset all")
	if r.version() >= 170000 {
		r.exec("alter database " + database + " set transaction_timeout = '300ms'")
	}
	s := r.source()
	r.open(s)
	// A transaction that takes longer to read than the server would allow.
	r.exec("insert into outbox.messages (key, created_at, payload) select i::text, '2026-01-02 03:04:05+00', jsonb_build_object('filler', repeat('x', 1000)) from generate_series(1, 20000) i")
	statuses := s.Stats().Statuses
	r.eventually("some statuses go out", func() bool { return s.Stats().Statuses >= statuses+5 })
	c := r.consume(s, nil)
	c.count(20000)
	c.mu.Lock()
	defer c.mu.Unlock()
	if want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); !c.rows[0].CreatedAt.Equal(want) {
		t.Errorf("created at %v, want %v", c.rows[0].CreatedAt, want)
	}
}
