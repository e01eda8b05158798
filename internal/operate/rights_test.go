package operate_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/schema"
)

// grant makes the roles with what is printed for them.
func (r *rig) grant(relay, monitoring, operator string) {
	r.t.Helper()
	var sql bytes.Buffer
	err := schema.Grants(&sql, schema.GrantsConfig{
		Schema: "outbox", Database: r.conn.Config().Database, Relay: relay, Monitoring: monitoring, Operator: operator,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.conn.PgConn().Exec(context.Background(), sql.String()).ReadAll(); err != nil {
		r.t.Fatal(err)
	}
}

// Who may do what: the page for operators says the same.
func TestRights(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	owner := setupAt(t, url)
	owner.messages(6, "a")
	owner.defers("transient", 5, 6)
	owner.exec(`update outbox.deferred set not_before = now() + interval '1 hour'`)
	operator, relay, monitoring := "operator_of_rights", "relay_of_rights", "monitoring_of_rights"
	owner.grant(relay, monitoring, operator)
	t.Cleanup(func() {
		conn := setupAt(t, url)
		for _, role := range []string{operator, relay, monitoring} {
			conn.exec(`drop owned by ` + role)
			conn.exec(`drop role ` + role)
		}
	})
	for _, c := range []struct {
		role                  string
		acts, pauses, changes bool // on messages, queues, and their other settings
	}{{operator, true, true, true}, {relay, true, true, false}, {monitoring, false, false, false}} {
		owner.die(1, 2)
		r := setupAt(t, url)
		r.exec(`set role ` + c.role)
		look := func(what string, err error) { r.expect(c.role, what, true, err) }
		act := func(what string, err error) { r.expect(c.role, what, c.acts, err) }
		ctx := t.Context()

		_, err := r.DeadLetters(ctx, operate.Filter{Key: "k1"})
		look("list dead letters", err)
		_, err = r.Deferred(ctx, operate.Filter{})
		look("list deferred messages", err)
		_, err = r.Queues(ctx)
		look("list queues", err)
		_, err = r.Redrive(ctx, []int64{1}, func(int) {})
		act("redrive", err)
		_, err = r.Discard(ctx, []int64{2}, "no")
		act("discard", err)
		_, err = r.MakeDue(ctx, operate.Retries, []int64{5})
		act("retry now", err)
		r.expect(c.role, "pause", c.pauses, r.set("orders", "paused=true"))
		r.expect(c.role, "resume", c.pauses, r.set("orders", "paused=false"))
		_, err = r.PauseQueue(ctx, "orders", operate.Pause{Reason: "why"})
		r.expect(c.role, "pause with a reason", c.pauses, err)
		owner.exec(`insert into outbox.queues (queue, paused) values ('orders', true) on conflict (queue) do update set paused = true`)
		_, err = r.ResumeQueue(ctx, "orders")
		r.expect(c.role, "end a pause", c.pauses, err)
		r.expect(c.role, "change a queue", c.changes, r.set("orders", "max_in_flight=5"))
		_, err = r.conn.Exec(ctx, `select payload from outbox.messages`)
		r.expect(c.role, "read payloads", c.role == relay, err)
		owner.exec(`delete from outbox.dead_letters`)
		owner.exec(`delete from outbox.deferred where message_id = 1`)
	}
}

// expect checks that something was allowed, or refused for want of rights.
func (r *rig) expect(role, what string, allowed bool, err error) {
	r.t.Helper()
	pgErr, _ := errors.AsType[*pgconn.PgError](err)
	if allowed && err != nil || !allowed && (pgErr == nil || pgErr.Code != "42501") {
		r.t.Errorf("%s, %s: %v, want allowed: %t", role, what, err, allowed)
	}
}
