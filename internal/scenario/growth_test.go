package scenario_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/netfault"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// OPS-11: much that was dispatched long ago is removed while applications write.
// What waits and what was set aside stays, whatever its age; the removal goes in
// small steps, makes nobody wait, and publishes nothing.
func TestOPS11_RemovalUnderLoad(t *testing.T) {
	t.Parallel()
	const old = 30_000
	// The server tells of everybody who waits for a lock for a tenth of a second.
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{"log_lock_waits": "on", "deadlock_timeout": "100ms"}})
	w := brisk(scenario.On(t, cluster.Migrated(t))).With(map[string]string{"RELAY_RETENTION": "1h"})
	w.Fault(emulator.Fault{KeyPrefix: "bad-", Status: http.StatusUnprocessableEntity})
	w.Exec(`insert into outbox.messages (key, queue, payload, created_at) select 'old-' || i, 'orders', '{}', now() - interval '9 days' from generate_series(1, $1) i`, old)
	w.Exec(`insert into outbox.dispatched (message_id, attempts, dispatched_at) select id, 1, now() - interval '8 days' from outbox.messages`)
	w.Exec(`insert into outbox.messages (key, queue, payload, created_at) select 'waiting-' || i, 'missing', '{}', now() - interval '9 days' from generate_series(1, 200) i`)
	w.Exec(`insert into outbox.messages (key, queue, payload, created_at) select 'bad-' || i, 'orders', '{}', now() - interval '9 days' from generate_series(1, 100) i`)
	w.Exec(`create table steps (removed int)`)
	w.Exec(`create function step() returns trigger language plpgsql as $$ begin
		insert into public.steps select count(*) from gone; return null; end $$`)
	w.Exec(`create trigger step after delete on outbox.messages referencing old table as gone for each statement execute function step()`)
	r := w.Start()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	slowest := make(chan time.Duration, 1)
	conn := w.Connect()
	go func() {
		var worst time.Duration
		for n := 0; ctx.Err() == nil; n++ {
			began := time.Now()
			if err := w.TryCommit(conn, scenario.Message{Key: fmt.Sprintf("new-%d", n), OrderingKey: "n"}); err != nil {
				t.Errorf("commit: %v", err)
				break
			}
			worst = max(worst, time.Since(began))
		}
		slowest <- worst
	}()
	pgtest.Eventually(t, scenario.Patience, func() error {
		left := w.Count(`select count(*) from outbox.messages where key like 'old-%'`)
		marks := w.Count(`select count(*) from outbox.dispatched where dispatched_at < now() - interval '1 day'`)
		if left+marks > 0 {
			return fmt.Errorf("%d old messages and %d marks are left", left, marks)
		}
		return nil
	})
	// What they waited for is in the server's log; this bound leaves room for a
	// machine that is busy with other tests.
	stop()
	if worst := <-slowest; worst > 30*time.Second {
		t.Errorf("an application waited %s", worst)
	}
	for line := range strings.Lines(logText(t, cluster)) {
		if strings.Contains(line, "still waiting for") {
			t.Errorf("somebody waited for a lock: %s", line)
		}
	}
	if largest, all := w.Count(`select max(removed) from steps`), w.Count(`select sum(removed) from steps`); largest > 1000 || all != old {
		t.Errorf("%d messages were removed, up to %d in one step; want %d, up to 1000", all, largest, old)
	}
	awaitDeferred(w, t, 200, "queue = 'missing'")
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := w.Count(`select count(*) from outbox.dead_letters d join outbox.messages m on m.id = d.message_id where m.key like 'bad-%'`); n != 100 {
			return fmt.Errorf("%d dead letters, want 100", n)
		}
		return nil
	})
	if n := w.Count(`select count(*) from outbox.messages where key like 'waiting-%'`); n != 200 {
		t.Errorf("%d messages that wait are left, want 200", n)
	}
	w.AwaitAccepted()
	w.AwaitMarked()
	w.AwaitSlot()
	for _, e := range w.Published() {
		if len(e.Key) > 4 && e.Key[:4] == "old-" {
			t.Fatalf("%s was sent", e.Key)
		}
	}
	if err := r.Alive(); err != nil {
		t.Error(err)
	}
}

// OUT-01: nobody answers at the queue's address while a large backlog grows, and
// the relay is killed twice. Nothing of it piles up in memory or in the WAL, the
// first message is there soon after the queue is, and all arrive in order.
func TestOUT01_NobodyAnswers(t *testing.T) {
	t.Parallel()
	const size, parts, lanes = 30_000, 30, 50
	w := scenario.New(t).With(map[string]string{"RELAY_LOG_LEVEL": "info"})
	queue := newFar(t, scenario.QueueName)
	door, err := netfault.New(queue.url[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = door.Close() })
	door.Refuse(true)
	w.Env["INFRAI_BASE_URL"] = "http://" + door.Addr()
	p := plain(t, w.Env, "run")
	p.AwaitLog(t, "session began")
	for part := range parts {
		w.Exec(`insert into outbox.messages (key, queue, ordering_key, payload)
			select 'big-' || i, 'orders', 'lane' || i % $3, jsonb_build_object('n', i, 'filler', repeat('x', 2000))
			from generate_series($1::int, $1 + $2 - 1) i`, part*size/parts, size/parts, lanes)
		if part == parts/3 || part == 2*parts/3 {
			kill(t, p)
			p = plain(t, w.Env, "run")
		}
	}
	awaitDeferred(w, t, size, "true")
	w.AwaitSlot()
	if accepted, requests := queue.counts(); accepted+requests != 0 {
		t.Errorf("%d requests went through a closed door", requests)
	}
	opened := time.Now()
	door.Refuse(false)
	queue.await(1)
	if took := time.Since(opened); took > 30*time.Second {
		t.Errorf("the first message came %s after the queue", took)
	}
	queue.await(size)
	noneLeft(w, t)
	w.AwaitSlot()
	if got := peak(t, p); got > memory {
		t.Errorf("the relay took %d MiB, want at most %d", got>>20, memory>>20)
	}
	last := map[int]int{}
	for _, key := range queue.accepted() {
		var n int
		if _, err := fmt.Sscanf(key, "big-%d", &n); err != nil {
			t.Fatalf("key %q", key)
		}
		if before, ok := last[n%lanes]; ok && n != before+lanes {
			t.Fatalf("message %d of its lane was accepted after %d", n, before)
		}
		last[n%lanes] = n
	}
}
