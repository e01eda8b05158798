package operate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

// rig is a migrated database with an operator in it.
type rig struct {
	*operate.Operator
	t    *testing.T
	conn *pgx.Conn
}

func setup(t *testing.T) *rig {
	t.Helper()
	return setupAt(t, pgtest.Migrated(t))
}

func setupAt(t *testing.T, url string) *rig {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec          // as the verbs do
	conn, err := pgx.ConnectConfig(context.Background(), config) // also at cleanup
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	o := operate.New(conn, "outbox")
	o.Pause = 0
	return &rig{Operator: o, t: t, conn: conn}
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.conn.Exec(context.Background(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// text is the one text that a query gives.
func (r *rig) text(sql string, args ...any) (text string) {
	r.t.Helper()
	if err := r.conn.QueryRow(context.Background(), sql, args...).Scan(&text); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return text
}

// messages writes messages 1 to n of a lane of the queue orders.
func (r *rig) messages(n int, orderingKey string) {
	r.t.Helper()
	r.exec(`insert into outbox.messages (key, queue, ordering_key, payload)
		select 'k' || n, 'orders', nullif($2::text, ''), '{}' from generate_series(1, $1::int) n`, n, orderingKey)
}

// die makes dead letters of messages.
func (r *rig) die(ids ...int64) {
	r.t.Helper()
	r.exec(`insert into outbox.dead_letters (message_id, attempts, last_status, reason, last_code, last_error, request_id)
		select id, 3, 422, 'refused', 'INVALID', 'no such field', 'req_1' from unnest($1::bigint[]) id`, ids)
}

// defers puts messages into deferred, as the relay does.
func (r *rig) defers(reason string, ids ...int64) {
	r.t.Helper()
	r.exec(`insert into outbox.deferred (message_id, queue, ordering_key, reason)
		select id, m.queue, m.ordering_key, $2::text
		from unnest($1::bigint[]) with ordinality as t (id, n) join outbox.messages m using (id) order by n`, ids, reason)
}

func (r *rig) redrive(ids ...int64) int {
	r.t.Helper()
	done, err := r.Redrive(context.Background(), ids, func(int) {})
	if err != nil {
		r.t.Fatal(err)
	}
	return done
}

// order is the order in which the relay reads a queue, or one lane of it.
func (r *rig) order() string {
	r.t.Helper()
	return r.text(`select coalesce(string_agg(message_id::text, ' ' order by position), '') from outbox.deferred`)
}

func TestDeadLetters_Filters(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(6, "a")
	r.exec(`insert into outbox.messages (key, queue, payload) values ('other', 'mails', '{}')`)
	r.die(1, 2, 3, 4, 5, 7)
	r.exec(`update outbox.dead_letters set reason = 'conflict' where message_id = 2`)
	r.exec(`update outbox.dead_letters set reason = 'discarded' where message_id = 3`)
	r.exec(`update outbox.dead_letters set died_at = now() - interval '2 hours' where message_id = 4`)
	r.exec(`delete from outbox.messages where id = 5`)
	for _, c := range []struct {
		name   string
		filter operate.Filter
		want   string
		count  int64
	}{
		{"all but discarded", operate.Filter{}, "[1 2 4 5 7]", 5},
		{"all", operate.Filter{Discarded: true}, "[1 2 3 4 5 7]", 6},
		{"discarded by reason", operate.Filter{Reason: "discarded"}, "[3]", 1},
		{"by id", operate.Filter{IDs: []int64{7, 1, 6, 99}}, "[1 7]", 2},
		{"by key", operate.Filter{Key: "k2"}, "[2]", 1},
		{"by queue", operate.Filter{Queue: "orders"}, "[1 2 4]", 3},
		{"by reason", operate.Filter{Reason: "conflict"}, "[2]", 1},
		{"older", operate.Filter{OlderThan: time.Hour}, "[4]", 1},
		{"newer", operate.Filter{NewerThan: time.Hour}, "[1 2 5 7]", 4},
		{"limited", operate.Filter{Limit: 2}, "[1 2]", 5},
		{"several at once", operate.Filter{Queue: "orders", Reason: "refused", NewerThan: time.Hour}, "[1]", 1},
		{"none", operate.Filter{Queue: "orders", Key: "other"}, "[]", 0},
	} {
		found, err := r.DeadLetters(t.Context(), c.filter)
		if err != nil {
			t.Fatal(err)
		}
		ids := []int64{}
		for _, d := range found {
			ids = append(ids, d.MessageID)
		}
		if got := fmt.Sprint(ids); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		count, err := r.CountDeadLetters(t.Context(), c.filter)
		if want := (operate.Count{Count: c.count}); err != nil || count != want {
			t.Errorf("%s: count %+v, %v, want %+v", c.name, count, err, want)
		}
	}
	ids, gone, err := r.DeadLetterIDs(t.Context(), operate.Filter{IDs: []int64{1, 3, 5}})
	if got := fmt.Sprint(ids, gone, err); got != "[1] [5] <nil>" {
		t.Errorf("ids are %s", got)
	}
}

func TestDeadLetter_SaysEverythingButThePayload(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(2, "a")
	r.die(1, 2)
	r.exec(`delete from outbox.messages where id = 2`)
	got, err := r.DeadLetter(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	status := 422
	want := &operate.DeadLetter{
		MessageID: 1, Key: "k1", Queue: "orders", OrderingKey: "a", DiedAt: got.DiedAt, Reason: "refused", Attempts: 3,
		LastStatus: &status, LastCode: "INVALID", LastError: "no such field", RequestID: "req_1",
	}
	if diff := cmp.Diff(want, got); diff != "" || got.DiedAt.IsZero() {
		t.Errorf("dead letter (-want +got):\n%s", diff)
	}
	if got, err := r.DeadLetter(t.Context(), 2); err != nil || !got.MessageGone || got.Key != "" {
		t.Errorf("without its message: %+v, %v", got, err)
	}
	if _, err := r.DeadLetter(t.Context(), 3); err == nil || err.Error() != "message 3 is no dead letter" {
		t.Errorf("error is %v", err)
	}
}

// What waits for a person to decide about a dead letter, in its own lane alone.
func TestBehind(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(3, "a")
	r.exec("insert into outbox.messages (key, queue, ordering_key, payload) values ('other', 'orders', 'b', '{}')")
	r.die(1)
	behind := func(want int64) {
		t.Helper()
		if got, err := r.Behind(t.Context(), 1); err != nil || got.Count != want {
			t.Errorf("%+v, %v wait; want %d", got, err, want)
		}
	}
	behind(0) // nothing is held
	r.defers("dead_letter", 1)
	r.defers("held", 2, 3, 4)
	behind(2)
	if err := r.set("orders", "ordering=queue"); err != nil {
		t.Fatal(err)
	}
	behind(3)
	if _, err := r.Discard(t.Context(), []int64{1}, "a test"); err != nil {
		t.Fatal(err)
	}
	behind(0) // they go on
}

func TestRedrive_MovesTheDeadLetter(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(3, "a")
	before := r.text(`select string_agg(m::text, ',' order by id) from outbox.messages m`)
	r.die(1, 2)
	r.exec(`delete from outbox.messages where id = 2`)
	if done := r.redrive(1, 2, 3); done != 1 {
		t.Errorf("%d redriven, want 1: message 2 is gone, 3 is no dead letter", done)
	}
	got := r.text(`select concat_ws(' ', message_id, queue, ordering_key, reason, attempts, charged, not_before <= now(),
		xid is null, last_status, last_error) from outbox.deferred`)
	if want := "1 orders a redriven 3 0 t t 422 no such field"; got != want {
		t.Errorf("deferred is %q, want %q", got, want)
	}
	if got := r.text(`select string_agg(message_id::text, ' ') from outbox.dead_letters`); got != "2" {
		t.Errorf("dead letters are %q, want the one without a message", got)
	}
	r.exec(`insert into outbox.messages overriding system value select 2, created_at, null, null, null, 'k2', queue, 'a', '{}' from outbox.messages where id = 1`)
	if after := r.text(`select string_agg(m::text, ',' order by id) from outbox.messages m where id <> 2`); len(after) >= len(before) {
		t.Errorf("messages changed from %s to %s", before, after)
	}
	if done := r.redrive(1); done != 0 {
		t.Errorf("a second redrive moved %d", done)
	}
}

func TestRedrive_KeepsThePlaceInTheLane(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deferred []int64
		redrives [][]int64
		want     string
	}{
		"an empty lane":             {nil, [][]int64{{3}}, "3"},
		"before younger ones":       {[]int64{4, 5}, [][]int64{{3}}, "3 4 5"},
		"several at once":           {[]int64{9}, [][]int64{{3, 1, 2}}, "1 2 3 9"},
		"one after the other":       {[]int64{9}, [][]int64{{1}, {2}, {3}}, "1 2 3 9"},
		"one after the other, down": {[]int64{9}, [][]int64{{3}, {2}, {1}}, "1 2 3 9"},
		"one between two":           {[]int64{9}, [][]int64{{1}, {3}, {2}}, "1 2 3 9"},
		"redriven and failed again": {[]int64{9}, [][]int64{{3}, {5}, {4}}, "3 4 5 9"},
		// 1 was committed after 3, otherwise it would have had its turn before.
		"an id that is no commit order": {[]int64{1, 5}, [][]int64{{8}, {3}}, "3 8 1 5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			r.messages(1000, "a")
			r.defers("held", c.deferred...)
			for _, ids := range c.redrives {
				r.die(ids...)
			}
			for _, ids := range c.redrives {
				r.redrive(ids...)
			}
			if got := r.order(); got != c.want {
				t.Errorf("order is %q, want %q", got, c.want)
			}
		})
	}
}

// Batches of one lane follow each other, whatever lies between them and the
// younger ones; and no two rows of a queue share a position, because a chunk of
// the relay's could end between them.
func TestRedrive_ManyOfOneLane(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const n = 450
	r.messages(n+10, "a")
	r.exec(`insert into outbox.messages (key, queue, ordering_key, payload) values ('x', 'orders', 'b', '{}')`)
	r.defers("held", n+11, n+1, n+2)
	ids := make([]int64, n)
	want := make([]string, n, n+3)
	for i := range ids {
		ids[i], want[i] = int64(i+1), fmt.Sprint(i+1)
	}
	r.die(ids...)
	var told []int
	done, err := r.Redrive(t.Context(), ids, func(done int) { told = append(told, done) })
	if err != nil || done != n {
		t.Fatalf("%d redriven, %v, want %d", done, err, n)
	}
	if diff := cmp.Diff([]int{100, 200, 300, 400, 450}, told); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	want = append(want, fmt.Sprint(n+11), fmt.Sprint(n+1), fmt.Sprint(n+2))
	if diff := cmp.Diff(strings.Join(want, " "), r.order()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if got := r.text(`select (count(*) - count(distinct position))::text from outbox.deferred`); got != "0" {
		t.Errorf("%s positions are used twice", got)
	}
}

func TestRedrive_StopsBetweenBatches(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Pause = time.Hour
	r.messages(150, "")
	ids := make([]int64, 150)
	for i := range ids {
		ids[i] = int64(i + 1)
	}
	r.die(ids...)
	ctx, cancel := context.WithCancel(t.Context())
	done, err := r.Redrive(ctx, ids, func(int) { cancel() })
	if done != 100 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d redriven, %v, want the first batch and a stop", done, err)
	}
	if got := r.text(`select (select count(*) from outbox.deferred) || ' ' || (select count(*) from outbox.dead_letters)`); got != "100 50" {
		t.Errorf("deferred and dead are %s", got)
	}
}

func TestDiscard_KeepsTheRecord(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(2, "")
	r.die(1, 2)
	for want := 1; want >= 0; want-- { // the second time it is discarded already
		if n, err := r.Discard(t.Context(), []int64{1}, "test order"); err != nil || n != want {
			t.Errorf("discarded %d, %v, want %d", n, err, want)
		}
	}
	d, err := r.DeadLetter(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if want := "test order (was refused: no such field)"; d.Reason != operate.ReasonDiscarded || d.LastError != want {
		t.Errorf("dead letter is %+v, want %q", d, want)
	}
	if ids, _, err := r.DeadLetterIDs(t.Context(), operate.Filter{}); err != nil || len(ids) != 1 || ids[0] != 2 {
		t.Errorf("the others are %v, %v", ids, err)
	}
}

func TestDeferred_EndsTheWait(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(5, "a")
	r.defers("held", 1, 2, 3, 4, 5)
	r.exec(`update outbox.deferred set reason = 'transient', not_before = now() + interval '5 minutes' where message_id = 1`)
	r.exec(`update outbox.deferred set reason = 'scheduled', not_before = now() + interval '1 day', ordering_key = null where message_id in (3, 4)`)
	r.exec(`update outbox.deferred set reason = 'transient', not_before = now() - interval '1 minute' where message_id = 5`)
	list, err := r.Deferred(t.Context(), operate.Filter{Reason: "scheduled", Limit: 1})
	if err != nil || len(list) != 1 || list[0].MessageID != 3 || list[0].OrderingKey != "a" || list[0].NotBefore == nil {
		t.Errorf("list is %+v, %v", list, err)
	}
	if n, err := r.CountDeferred(t.Context(), operate.Filter{Queue: "orders"}); err != nil || n.Count != 5 {
		t.Errorf("count is %+v, %v", n, err)
	}
	for _, c := range []struct {
		kind   operate.Kind
		filter operate.Filter
		want   string
	}{
		{operate.Retries, operate.Filter{}, "[1]"},
		{operate.Retries, operate.Filter{IDs: []int64{2, 3}}, "[]"},
		{operate.Scheduled, operate.Filter{Key: "k4"}, "[4]"},
		{operate.Scheduled, operate.Filter{}, "[3 4]"},
	} {
		ids, err := r.WaitingIDs(t.Context(), c.kind, c.filter)
		if got := fmt.Sprint(ids); err != nil || got != c.want {
			t.Errorf("%+v: %s, %v, want %s", c.filter, got, err, c.want)
		}
	}
	all := []int64{1, 2, 3, 4, 5}
	if n, err := r.MakeDue(t.Context(), operate.Retries, all); err != nil || n != 1 {
		t.Errorf("made %d due, %v, want 1", n, err)
	}
	const due = `select string_agg(message_id::text, ' ' order by message_id) from outbox.deferred where not_before <= now()`
	if got := r.text(due); got != "1 5" {
		t.Errorf("due are %s", got)
	}
	if n, err := r.MakeDue(t.Context(), operate.Scheduled, all); err != nil || n != 2 {
		t.Errorf("made %d due, %v, want 2", n, err)
	}
	if got := r.text(due); got != "1 3 4 5" {
		t.Errorf("due are %s", got)
	}
}
