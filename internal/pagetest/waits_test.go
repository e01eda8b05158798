package pagetest_test

import (
	"fmt"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// saysWhatWaits: keys that wait for a person, a queue that somebody has paused and
// messages that no stream has shown are each told of where one looks for them, and
// no longer than they are there.
func saysWhatWaits(w *scenario.World, b *tab) {
	b.t.Helper()
	w.Fault(emulator.Fault{Route: "queue.publish", KeyPrefix: "bad", Status: 422})
	b.open("/")
	for i := range 3 {
		key := fmt.Sprintf("customer-%d", i)
		w.Insert(scenario.Message{Key: fmt.Sprintf("bad-%d", i), OrderingKey: key}, scenario.Message{Key: fmt.Sprintf("behind-%d", i), OrderingKey: key})
	}
	w.Insert(scenario.Message{Key: "a-mail", Queue: "mails"}, scenario.Message{Key: "fine", OrderingKey: "customer-9"})
	gate := `#queues tbody tr:nth-child(2) [data-label="Gate"]`
	b.sees(gate, "3 keys held")
	b.sees(gate, "3 keys behind dead letters, until a person decides")
	b.sees("#queues", "max_in_flight=8")
	b.sees("#queues", "on_dead_letter=hold")
	b.sees("#queues", "by oncall: the provider asks for it")
	b.sees("#verdict .findings", "3 dead letters need a person")
	b.sees("#verdict .findings", "3 of them behind a dead letter until a person has decided about it")
	b.sees("#deferred", "when a person has decided about it")
	b.sees("#deferred", "when mails is resumed")
	unseen(w, b)

	for _, width := range []int64{360, 1280} {
		b.screen(width, 800)
		if wide := value[int64](b, `document.documentElement.scrollWidth`); wide > width {
			b.t.Errorf("the page is %d wide on a screen of %d", wide, width)
		}
	}
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		for _, problem := range value[[]string](b, unreadable) {
			b.t.Errorf("%s: %s", scheme, problem)
		}
	}

	b.follow(gate + " a")
	b.sees("h1", "Dead letters 3")
	w.Exec(`delete from outbox.messages where key like 'bad%'`) // withdraws them
	w.Exec(`update outbox.dead_letters set reason = 'discarded', discarded_at = now()`)
	w.Exec(`update outbox.deferred set not_before = now() where reason = 'dead_letter'`)
	b.open("/")
	b.sees(gate, "open")
	b.sees("#dead", "No message needs a person.")
	pgtest.Eventually(b.t, patience, func() error {
		if value[bool](b, `document.getElementById("verdict").innerText.includes("dead letter")`) {
			return fmt.Errorf("the warning stays")
		}
		return nil
	})
}

// unseen: what a row filter hides is in the row of its queue.
func unseen(w *scenario.World, b *tab) {
	b.t.Helper()
	if w.Count(`select current_setting('server_version_num')::bigint`) < 150000 {
		return // there are no row filters
	}
	w.Exec(`alter publication outbox_relay set table outbox.messages where (key not like 'hidden%')`)
	w.Insert(scenario.Batch("hidden", 12)...)
	b.sees(`#queues tbody tr:nth-child(2) [data-label="In memory"]`, "12 unseen")
	b.sees("#verdict .sentence", "12 of them not in the relay's memory (")
	b.sees("#verdict .findings", "12 messages have no outcome and are not in the relay's memory (orders 12), the oldest 1")
	w.Exec(`alter publication outbox_relay set table outbox.messages`)
}
