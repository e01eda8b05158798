package status_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/schema"
)

func (b bundle) figures(t *testing.T) *status.Figures {
	t.Helper()
	figures, err := status.ReadFigures(t.Context(), b.conn, "outbox", b.slot)
	if err != nil {
		t.Fatal(err)
	}
	return figures
}

func TestReadFigures_BeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	f := setup(t).figures(t)
	if f.WrittenBytes == 0 || f.Replication != (status.SlotFigures{}) || len(f.DeadLetterReasons) != 0 || f.OldestUnknownSeconds != nil {
		t.Errorf("got %+v", f)
	}
}

func TestReadFigures_CountsByReason(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.figures(t).WrittenBytes
	b.execute(t, `insert into outbox.dead_letters (message_id, attempts, reason)
		select i, 1, case when i = 1 then 'discarded' when i < 4 then 'conflict' else 'refused' end from generate_series(1, 9) i`)
	b.execute(t, `insert into outbox.deferred (message_id, queue, reason, unknown_since)
		values (11, 'q', 'held', null), (12, 'q', 'unknown_outcome', now() - interval '1 hour')`)
	f := b.figures(t)
	if diff := cmp.Diff([]status.ReasonCount{{"conflict", 2}, {"refused", 6}}, f.DeadLetterReasons); diff != "" {
		t.Error(diff)
	}
	if age := *f.OldestUnknownSeconds; age < 3600 || age > 3660 {
		t.Errorf("the oldest request without an answer was %v s ago", age)
	}
	if f.Deferred.Count != 2 || len(f.DeferredReasons) != 2 || f.WrittenBytes <= before {
		t.Errorf("got %+v", f)
	}
}

func TestReadFigures_Tables(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bytes := func(name string) int64 {
		tables := b.figures(t).Tables
		i := slices.IndexFunc(tables, func(table status.Table) bool { return table.Name == name })
		if i < 0 {
			t.Fatalf("no %s among %+v", name, tables)
		}
		return tables[i].Bytes
	}
	if n := len(b.figures(t).Tables); n != 9 {
		t.Errorf("%d tables, want 9", n)
	}
	before := bytes("messages")
	b.execute(t, `insert into outbox.messages (key, queue, payload) select i::text, 'q', '{}' from generate_series(1, 5000) i`)
	if after := bytes("messages"); after < before+5000*40 {
		t.Errorf("messages had %d bytes, and %d with 5000 more", before, after)
	}
}

// A relay needs no more rights for its metrics than it has for its work.
func TestReadFigures_WithTheRightsOfARelay(t *testing.T) {
	t.Parallel()
	for _, polls := range []bool{false, true} {
		b := setup(t)
		database := b.conn.Config().Database
		cfg := schema.GrantsConfig{Schema: "outbox", Database: database, Relay: "relay_" + database, Poll: polls}
		var grants strings.Builder
		if err := schema.Grants(&grants, cfg); err != nil {
			t.Fatal(err)
		}
		role := pgx.Identifier{cfg.Relay}.Sanitize()
		b.execute(t, grants.String())
		b.execute(t, `insert into outbox.claims (consumer, event_id, expires_at) values ('c', 'e', now() - interval '1 day')`)
		b.execute(t, `set role `+role)
		f := b.figures(t)
		if f.Claims.OldestExpiredSeconds == nil || len(f.Tables) != 9 {
			t.Errorf("polls %v: got %+v", polls, f)
		}
		b.execute(t, `reset role`)
		b.execute(t, `drop owned by `+role)
		b.execute(t, `drop role `+role)
	}
}

// Transactions of others show with their age: those that have written, those that
// are prepared, and those that only look.
func TestReadFigures_Transactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := func(statements ...string) {
		conn, err := pgx.ConnectConfig(t.Context(), b.conn.Config())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		for _, sql := range statements {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	other(`begin isolation level repeatable read`, `select 1`)
	other(`begin`, `create table written ()`)
	prepared := "prepared " + b.conn.Config().Database
	other(`begin`, `create table prepared ()`, `prepare transaction '`+prepared+`'`)
	defer b.execute(t, `rollback prepared '`+prepared+`'`)
	seen := b.figures(t).Transactions
	for kind, age := range map[string]*float64{"writer": seen.Writer, "prepared": seen.Prepared, "reader": seen.Reader} {
		if age == nil || *age <= 0 {
			t.Errorf("the age of the %s is %v", kind, age)
		}
	}

	// Without the right to see others there is nothing to say.
	role := pgx.Identifier{"looks_" + b.conn.Config().Database}.Sanitize()
	b.execute(t, `create role `+role)
	b.execute(t, `grant usage on schema outbox to `+role)
	b.execute(t, `grant select on all tables in schema outbox to `+role)
	b.execute(t, `set role `+role)
	if seen = b.figures(t).Transactions; seen.Writer != nil || seen.Reader != nil || seen.Prepared == nil {
		t.Errorf("without pg_read_all_stats: %+v", seen)
	}
	b.execute(t, `reset role`)
	b.execute(t, `drop owned by `+role)
	b.execute(t, `drop role `+role)
}
