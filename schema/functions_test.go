package schema_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func TestEnqueue(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Migrated(t))
	first := query[*int64](t, conn, `select outbox.enqueue('k-1', 'orders', '{"n": 1.50}')`)
	if again := query[*int64](t, conn, `select outbox.enqueue('k-1', 'orders', '{}')`); first == nil || again != nil {
		t.Errorf("got %v and then %v, want an id and then null", first, again)
	}
	second := query[int64](t, conn, `select outbox.enqueue(key => 'k-2', queue => 'orders', payload => '{}', ordering_key => 'o',
		headers => '{"h": "v"}', delay_seconds => 5, priority => 3, deliver_at => '2031-01-01 00:00+00')`)
	got := query[[]string](t, conn, `select array_agg(concat_ws(' ', id, key, queue, payload, ordering_key, headers, delay_seconds, priority,
		deliver_at at time zone 'UTC') order by id) from outbox.messages`)
	want := []string{
		fmt.Sprintf(`%d k-1 orders {"n": 1.50}`, *first),
		fmt.Sprintf(`%d k-2 orders {} o {"h": "v"} 5 3 2031-01-01 00:00:00`, second),
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	_, err := conn.Exec(t.Context(), `select outbox.enqueue('k-3', 'Orders', '{}')`)
	if got := refused(err).ConstraintName; got != "messages_queue_valid" {
		t.Errorf("refused by %q (%v)", got, err)
	}
}

// APP-01: a rolled back savepoint takes its message along.
func TestEnqueue_RollsBackWithItsSavepoint(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Migrated(t))
	exec(t, conn, `begin; select outbox.enqueue('kept', 'q', '{}'); savepoint s;
		select outbox.enqueue('gone', 'q', '{}'); rollback to s; commit`)
	if got := query[[]string](t, conn, `select array_agg(key) from outbox.messages`); fmt.Sprint(got) != "[kept]" {
		t.Errorf("messages %v", got)
	}
}

// atOnce runs the same statement on n connections at the same moment and counts
// the answers that are true.
func atOnce(t *testing.T, url string, n int, sql string) (yes int) {
	t.Helper()
	var mu sync.Mutex
	var group errgroup.Group
	start := make(chan struct{})
	for range n {
		conn := connect(t, url)
		exec(t, conn, "begin")
		group.Go(func() error {
			<-start
			var answer bool
			if err := conn.QueryRow(context.Background(), sql).Scan(&answer); err != nil {
				return err
			}
			mu.Lock()
			if answer {
				yes++
			}
			mu.Unlock()
			_, err := conn.Exec(context.Background(), "commit")
			return err
		})
	}
	close(start)
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return yes
}

func TestEnqueue_OneOfManyConcurrentCallersWritesTheKey(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	for round := range 5 {
		sql := fmt.Sprintf(`select outbox.enqueue('k-%d', 'q', '{}') is not null`, round)
		if yes := atOnce(t, url, 8, sql); yes != 1 {
			t.Errorf("%d callers wrote the key, want 1", yes)
		}
	}
}

func TestClaim_ExactlyOneOfManyConcurrentCallers(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	conn := connect(t, url)
	for round := range 5 {
		sql := fmt.Sprintf(`select outbox.claim('mailer', 'e-%d', '1 hour')`, round)
		if yes := atOnce(t, url, 8, sql); yes != 1 {
			t.Errorf("%d callers have the claim, want 1", yes)
		}
		if yes := atOnce(t, url, 8, sql); yes != 0 {
			t.Errorf("%d callers have it again, want none", yes)
		}
		// Expired, it goes to exactly one again.
		exec(t, conn, `update outbox.claims set expires_at = now(), result = '{"old": 1}'`)
		if yes := atOnce(t, url, 8, sql); yes != 1 {
			t.Errorf("%d callers have the expired claim, want 1", yes)
		}
	}
	if left := query[int](t, conn, `select count(*) from outbox.claims where result is not null and expires_at > now()`); left != 0 {
		t.Errorf("%d new claims have the result of the old one", left)
	}
}

func TestClaim_IsOneConsumersAndEndsWithItsTransaction(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Migrated(t))
	claim := func(sql string) bool { return query[bool](t, conn, sql) }
	if !claim(`select outbox.claim('mailer', 'e')`) || !claim(`select outbox.claim('printer', 'e')`) {
		t.Error("two consumers of one event do not both get it")
	}
	if days := query[int](t, conn, `select extract(day from expires_at - claimed_at)::int from outbox.claims limit 1`); days != 7 {
		t.Errorf("a claim is kept for %d days, want 7", days)
	}
	exec(t, conn, `begin; select outbox.claim('mailer', 'other'); rollback`)
	if !claim(`select outbox.claim('mailer', 'other')`) {
		t.Error("a claim survived its transaction")
	}
}

func TestClaim_RefusesWhatCannotBeKept(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Migrated(t))
	for args, want := range map[string]string{
		`'c', 'e', '0'`:              "22023",
		`'c', 'e', '-1 hour'`:        "22023",
		`'c', 'e', null`:             "22023",
		`'', 'e'`:                    "23514",
		`'c', ''`:                    "23514",
		`'c', repeat('e', 1025)`:     "23514",
		`repeat('c', 256), 'e'`:      "23514",
		`null, 'e'`:                  "23502",
		"'c', repeat('\u00e9', 513)": "23514",
	} {
		_, err := conn.Exec(t.Context(), `select outbox.claim(`+args+`)`)
		if got := refused(err).Code; got != want {
			t.Errorf("claim(%s): got %v, want SQLSTATE %s", args, err, want)
		}
	}
	exec(t, conn, `select outbox.claim(repeat('c', 255), repeat('e', 1024))`)
}

// A caller's search path cannot lead the functions to tables, functions or
// operators of his own, nor to his temporary tables.
func TestFunctions_HostileSearchPath(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Migrated(t))
	exec(t, conn, hostileSchema)
	for _, path := range []string{`pg_temp, evil, pg_catalog`, `evil, pg_catalog, pg_temp`, `''`} {
		exec(t, conn, `set search_path = `+path)
		for _, table := range []string{"messages", "claims", "relays"} {
			exec(t, conn, fmt.Sprintf(`create temp table if not exists %s (a int)`, table))
		}
		exec(t, conn, `begin`)
		exec(t, conn, `insert into outbox.relays (slot, epoch) values ('s', 1)`)
		exec(t, conn, `select outbox.enqueue('k', 'q', '{}')`)
		if !query[bool](t, conn, `select outbox.claim('c', 'e', pg_catalog.interval '1 hour')`) ||
			query[bool](t, conn, `select outbox.claim('c', 'e', pg_catalog.interval '1 hour')`) {
			t.Errorf("path %s: claim was led astray", path)
		}
		exec(t, conn, `select outbox.record_position('s', 1, '0/1')`)
		got := query[string](t, conn, `select pg_catalog.format('%s %s %s', (select pg_catalog.count(*) from outbox.messages),
			(select pg_catalog.count(*) from outbox.claims where expires_at operator(pg_catalog.>) pg_catalog.now()),
			(select pg_catalog.count(*) from outbox.relays where confirmed_lsn operator(pg_catalog.=) '0/1'))`)
		if got != "1 1 1" {
			t.Errorf("path %s: messages, claims, positions: %s, want one each", path, got)
		}
		exec(t, conn, `rollback`)
	}
}

func TestRecordPosition(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Migrated(t))
	exec(t, conn, `insert into outbox.relays (slot, epoch) values ('mine', 7), ('other', 7)`)
	record := func(slot string, epoch int, lsn string) error {
		_, err := conn.Exec(t.Context(), `select outbox.record_position($1, $2, $3::text::pg_lsn)`, slot, epoch, lsn)
		return err
	}
	for _, lsn := range []string{"0/10", "0/20", "0/20"} {
		if err := record("mine", 7, lsn); err != nil {
			t.Errorf("%s: %v", lsn, err)
		}
	}
	got := query[string](t, conn, `select string_agg(concat_ws(' ', slot, confirmed_lsn), ', ' order by slot) from outbox.relays`)
	if want := "mine 0/20, other"; got != want {
		t.Errorf("positions %s, want %s", got, want)
	}
	for name, err := range map[string]error{
		"an old epoch":                    record("mine", 6, "0/30"),
		"an old epoch, the same position": record("mine", 6, "0/20"),
		"no such slot":                    record("none", 7, "0/30"),
	} {
		if r := refused(err); r.Code != "OR001" || r.Message == "" {
			t.Errorf("%s: got %v, want SQLSTATE OR001", name, err)
		}
	}
	exec(t, conn, `update outbox.relays set timeline = 99 where slot = 'other'`) // as if the server had been promoted since
	if r := refused(record("other", 7, "0/30")); r.Code != "OR001" {
		t.Errorf("another timeline: got %v, want SQLSTATE OR001", r)
	}
	exec(t, conn, `update outbox.relays set timeline = 1 where slot = 'other'`)
	if err := record("other", 7, "0/30"); err != nil {
		t.Errorf("the timeline of the server: %v", err)
	}
	// Only a change costs a new row version.
	before := query[string](t, conn, `select ctid::text from outbox.relays where slot = 'mine'`)
	if err := record("mine", 7, "0/20"); err != nil {
		t.Error(err)
	}
	if after := query[string](t, conn, `select ctid::text from outbox.relays where slot = 'mine'`); after != before {
		t.Errorf("an unchanged position moved the row from %s to %s", before, after)
	}
}

// A takeover waits for an outcome transaction that has passed the guard, and the
// next one of the old relay is refused, whether or not its position moves.
func TestRecordPosition_HoldsTheEpochUntilCommit(t *testing.T) {
	t.Parallel()
	for _, lsn := range []string{"0/10", "0/20"} {
		t.Run(lsn, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Migrated(t)
			old, next := connect(t, url), connect(t, url)
			exec(t, old, `insert into outbox.relays (slot, epoch, confirmed_lsn) values ('s', 1, '0/10')`)
			exec(t, old, `begin`)
			exec(t, old, `select outbox.record_position('s', 1, $1::text::pg_lsn)`, lsn)

			done := make(chan error, 1)
			go func() {
				_, err := next.Exec(context.Background(), `update outbox.relays set epoch = epoch + 1 where slot = 's'`)
				done <- err
			}()
			awaitLock(t, old, next)
			exec(t, old, `insert into outbox.dispatched (message_id, attempts) values (1, 1)`)
			exec(t, old, `commit`)
			if err := <-done; err != nil {
				t.Error(err)
			}
			if _, err := old.Exec(t.Context(), `select outbox.record_position('s', 1, $1::text::pg_lsn)`, lsn); refused(err).Code != "OR001" {
				t.Errorf("after the takeover: got %v, want SQLSTATE OR001", err)
			}
		})
	}
}

// awaitLock returns once the second connection waits for a lock.
func awaitLock(t *testing.T, conn, waiting *pgx.Conn) {
	t.Helper()
	pid := waiting.PgConn().PID()
	pgtest.Eventually(t, time.Minute, func() error {
		if !query[bool](t, conn, `select exists (select from pg_locks where pid = $1 and not granted)`, pid) {
			return fmt.Errorf("session %d waits for no lock", pid)
		}
		return nil
	})
}
