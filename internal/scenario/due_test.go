package scenario_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// A queue takes less than comes, so that its backlog drains all the time. What waits
// for its time goes out when that has come, and does not wait for the end of the
// backlog: a message that failed, a lane behind one that did, one that is redriven,
// and one that is scheduled. A scheduled one of an ordering key takes its place behind
// what was committed before its time.
func TestDue_WhileTheQueueIsAlwaysFull(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t)).With(map[string]string{"RELAY_RETRY_MIN": "1s", "RELAY_RETRY_MAX": "1s"}) // the next attempt comes from the table
	o := operator(w)
	setQueue(t, o, operate.Settings{"rate_per_second": 200})
	refusal := w.Fault(emulator.Fault{Key: "redriven", Status: http.StatusUnprocessableEntity})
	w.Fault(emulator.Fault{Key: "fails", Status: http.StatusInternalServerError, Count: 1})
	w.Fault(emulator.Fault{Key: "lane", Status: http.StatusInternalServerError, Count: 1})
	w.Start()
	w.Insert(scenario.Message{Key: "redriven"})
	awaitDeadLetters(t, w, 1)
	w.Queue.RemoveFault(refusal)

	backlog := scenario.Batch("m", 3000)
	w.Commit(w.Conn, backlog[:1000]...)
	pgtest.Eventually(t, scenario.Patience, func() error {
		if w.Count(`select count(*) from outbox.deferred`) == 0 {
			return errors.New("there is no backlog")
		}
		return nil
	})
	late := []scenario.Message{
		{Key: "fails"}, {Key: "lane", OrderingKey: "a"}, {Key: "behind", OrderingKey: "a"}, {Key: "scheduled"}, {Key: "scheduled-lane", OrderingKey: "b"},
	}
	w.Commit(w.Conn, late[:3]...)
	for _, m := range late[3:] {
		w.Exec(`insert into outbox.messages (key, queue, ordering_key, payload, deliver_at)
			values ($1, $2, nullif($3, ''), '{}', now() + interval '1 second')`, m.Key, scenario.QueueName, m.OrderingKey)
		w.Committed(m)
	}
	redriveAll(t, o, 1)
	w.Commit(w.Conn, backlog[1000:]...)
	w.Settle()
	noneLeft(w, t)
	noDeadLetters(t, w)
	accepted := firstAccepted(w)
	for _, key := range []string{"redriven", "fails", "lane", "behind", "scheduled"} {
		if at := slices.Index(accepted, key); at > len(accepted)-500 {
			t.Errorf("message %q is number %d of %d that were accepted: it has waited for the end of the backlog", key, at+1, len(accepted))
		}
	}
}
