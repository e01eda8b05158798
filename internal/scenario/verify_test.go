package scenario_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/internal/verify"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// inspector verifies again and again. No message is young for it: whatever has no
// outcome yet is in doubt, and has to stand the second look.
type inspector struct {
	t   *testing.T
	w   *scenario.World
	cfg verify.Config
}

func inspect(t *testing.T, w *scenario.World) *inspector {
	return &inspector{t, w, verify.Config{Schema: "outbox", Slot: w.Env["RELAY_SLOT"], Young: time.Nanosecond, Batch: 500}}
}

func (i *inspector) run() *verify.Report {
	i.t.Helper()
	report, err := verify.Run(i.t.Context(), i.w.Connect(), i.cfg)
	if err != nil {
		i.t.Fatal(err)
	}
	return report
}

// looks is how often it verifies in each situation.
const looks = 3

// noAlarm verifies in the middle of something.
func (i *inspector) noAlarm(during string) {
	i.t.Helper()
	for range looks {
		report := i.run()
		if !report.OK {
			i.t.Errorf("%s: false alarm: %s %v", during, report.Summary, report.Examples)
		}
		i.t.Logf("%s: %s; %d in flight, %d of them late, %d deferred, %d dead, %.1f s",
			during, report.Summary, report.InFlight, report.Late, report.Deferred, report.DeadLetters, report.Seconds)
	}
}

// A relay under load, with a queue that fails and loses answers, kills, dead
// letters that hold their lanes, redrives and withdrawals: whenever one verifies,
// every message has one outcome or is on its way.
func TestVerify_NoFalseAlarmUnderLoad(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	w.Exec(`insert into outbox.queues (queue, on_dead_letter) values ('orders', 'hold')`)
	p := process(t, w, nil)
	i := inspect(t, w)
	stop := w.Writers(6)
	i.noAlarm("in normal life")

	w.Fault(emulator.Fault{Route: "queue.publish", Every: 7, Store: true, Cut: "close", Count: 40})
	refused := w.Fault(emulator.Fault{Route: "queue.publish", KeyPrefix: "writer2-", Status: 422, Count: 3})
	i.noAlarm("while answers are lost, and some are refused")

	down := w.Fault(emulator.Fault{Route: "queue.publish", Status: 503})
	i.noAlarm("while the queue begins to fail")
	i.noAlarm("while the queue is down")
	kill(t, p)
	i.noAlarm("without a relay")
	p = process(t, w, nil)
	i.noAlarm("after a kill")
	w.Insert(scenario.Message{Key: "withdrawn"})
	pgtest.Eventually(t, scenario.Patience, func() error {
		if w.Count(`select count(*) from outbox.deferred d join outbox.messages m on m.id = d.message_id where key = 'withdrawn'`) == 0 {
			return fmt.Errorf("the message is not deferred")
		}
		return nil
	})
	w.Exec(`delete from outbox.messages where key = 'withdrawn'`)
	w.Forget("withdrawn")
	w.Queue.RemoveFault(down)
	w.Queue.RemoveFault(refused)
	i.noAlarm("while the backlog drains")
	kill(t, p)
	p = process(t, w, nil)
	verbPrints(t, w, "dead-letters", "redrive", "--queue", "orders", "--yes")
	i.noAlarm("while dead letters are sent again")
	stop()
	redriveUntilNone(t, w)
	w.Settle()
	if report := i.run(); !report.OK || report.InFlight != 0 || report.Messages != report.Dispatched {
		t.Errorf("in the end: %s, %+v", report.Summary, report.Counts)
	}

	// A hand deletes a mark. The relay that runs does not look there again, the
	// next one does.
	damaged := w.Count(`delete from outbox.dispatched where message_id = (select min(message_id) from outbox.dispatched) returning message_id`)
	report := i.run()
	if report.Unaccounted != 1 || len(report.Examples) != 1 || report.Examples[0].MessageID != damaged {
		t.Errorf("without the mark of message %d: %s %v", damaged, report.Summary, report.Examples)
	}
	text := verbPrints(t, w, "explain", fmt.Sprint(damaged))
	if !strings.Contains(text, "has no outcome yet") {
		t.Errorf("explain says\n%s", text)
	}
	terminate(t, p)
	p.AwaitExit(t, 0)
	process(t, w, nil)
	w.AwaitMarked()
	if report := i.run(); !report.OK {
		t.Errorf("after the repair: %s", report.Summary)
	}
	if text := verbPrints(t, w, "explain", fmt.Sprint(damaged)); !strings.Contains(text, "was dispatched at") || !strings.Contains(text, "active since") {
		t.Errorf("explain says\n%s", text)
	}
}

// redriveUntilNone sends dead letters again until there is none.
func redriveUntilNone(t *testing.T, w *scenario.World) {
	t.Helper()
	pgtest.Eventually(t, scenario.Patience, func() error {
		n := w.Count(`select count(*) from outbox.dead_letters`)
		if n == 0 {
			return nil
		}
		verbPrints(t, w, "dead-letters", "redrive", "--queue", "orders", "--yes")
		return fmt.Errorf("%d dead letters", n)
	})
}

// The same for a relay that polls, which has no position to wait for.
func TestVerify_NoFalseAlarmWhilePolling(t *testing.T) {
	t.Parallel()
	w := polling(scenario.New(t))
	i := inspect(t, w)
	i.cfg.Wait = 9 * time.Second
	process(t, w, nil)
	stop := w.Writers(4)
	i.noAlarm("in normal life")
	down := w.Fault(emulator.Fault{Route: "queue.publish", Status: 503})
	i.noAlarm("while the queue is down")
	w.Queue.RemoveFault(down)
	i.noAlarm("while the backlog drains")
	stop()
	w.AwaitAccepted()
	w.AwaitMarked()
	damaged := w.Count(`delete from outbox.dispatched where message_id = (select min(message_id) from outbox.dispatched) returning message_id`)
	if report := i.run(); report.Unaccounted != 1 || report.Examples[0].MessageID != damaged {
		t.Errorf("without the mark of message %d: %s %v", damaged, report.Summary, report.Examples)
	}
}
