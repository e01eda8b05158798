package pgtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func TestStandby_FollowsAndIsPromoted(t *testing.T) {
	t.Parallel()
	primary := pgtest.New(t, pgtest.Options{Settings: map[string]string{"max_connections": "50"}})
	query[string](t, primary.URL("postgres"), "select pg_create_logical_replication_slot('before', 'pgoutput')::text")
	standby := pgtest.NewStandby(t, primary)
	execute(t, primary.URL("postgres"), "create table kept (n int)", "insert into kept values (4)")
	written := query[string](t, primary.URL("postgres"), "select pg_current_wal_lsn()::text")
	pgtest.Eventually(t, time.Minute, func() error {
		if !query[bool](t, standby.URL("postgres"), "select pg_last_wal_replay_lsn() >= $1::text::pg_lsn", written) {
			return fmt.Errorf("the standby has not replayed %s", written)
		}
		return nil
	})
	if query[bool](t, standby.URL("postgres"), "select exists (select from pg_replication_slots where slot_name = 'before')") {
		t.Error("the standby has the primary's slot, which was not made for failover")
	}
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	execute(t, standby.URL("postgres"), "insert into kept values (5)")
	if got := query[int](t, standby.URL("postgres"), "select sum(n)::int from kept"); got != 9 {
		t.Errorf("sum is %d, want 9", got)
	}
}

func TestClone_IsTheSameServer(t *testing.T) {
	t.Parallel()
	original := pgtest.New(t)
	query[string](t, original.URL("postgres"), "select pg_create_logical_replication_slot('kept', 'pgoutput')::text")
	clone := pgtest.NewClone(t, original)
	const identity = "select system_identifier || ' ' || (select string_agg(slot_name, ',') from pg_replication_slots) from pg_control_system()"
	if a, b := query[string](t, original.URL("postgres"), identity), query[string](t, clone.URL("postgres"), identity); a != b {
		t.Errorf("the clone is %s, the original %s", b, a)
	}
	if original.Port() == clone.Port() {
		t.Error("both have one port")
	}
}

func execute(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}
