package scenario_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// wrap changes the envelope of the queue orders.
func wrap(w *scenario.World, envelope string) {
	w.Exec(`insert into outbox.queues (queue, envelope) values ($1, $2) on conflict (queue) do update set envelope = excluded.envelope`,
		scenario.QueueName, envelope)
}

// awaitEnvelope waits until messages to come have an envelope.
func awaitEnvelope(t *testing.T, w *scenario.World, want string) {
	t.Helper()
	o := operator(w)
	pgtest.Eventually(t, scenario.Patience, func() error {
		q, err := o.Queue(t.Context(), scenario.QueueName)
		if err == nil && (q.EnvelopePending || q.Envelope != want) {
			err = fmt.Errorf("the envelope is %s, pending %t, want %s", q.Envelope, q.EnvelopePending, want)
		}
		return err
	})
}

// events returns what the queue accepted as a CloudEvent, by key, and the keys of
// all else.
func events(w *scenario.World) (events map[string]consumer.Message, bare map[string]bool) {
	events, bare = map[string]consumer.Message{}, map[string]bool{}
	for _, m := range w.Queue.Accepted("") {
		event, err := consumer.CloudEvents(m.Payload)
		if err != nil {
			bare[m.Key] = true
			continue
		}
		events[m.Key] = event
	}
	return events, bare
}

// expectEvents checks which of the committed messages arrived as events.
func expectEvents(t *testing.T, w *scenario.World, want func(key string) bool) {
	t.Helper()
	wrapped, bare := events(w)
	for _, m := range w.Keys() {
		_, isEvent := wrapped[m.Key]
		if isEvent != want(m.Key) || bare[m.Key] == isEvent {
			t.Errorf("%s arrived as an event: %t, and bare: %t", m.Key, isEvent, bare[m.Key])
		}
	}
}

// odd are messages whose rows could be read in two ways.
var odd = []struct{ payload, headers, created string }{
	{`{"b": 1.10, "a": 1e400, "big": 12345678901234567890123456789012345678901234567890, "neg": -0.0}`, `{"ce-type": "order.placed"}`, "2026-03-01 12:00:00.250001+00"},
	{`{"s": "\u00e4\ud83d\ude00\u2028 \\ \" \/ \b\u001f", "ä": {"": []}}`, `{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=1"}`, "2026-03-01 12:00:00+05:30"},
	{`{"deep": [[[{"z": 1, "a": null}]], true, false, {}]}`, `{"traceparent": "odd", "ce-source": "https://shop.example/eu"}`, "0001-01-01 00:00:00+00"},
	{`{}`, `{}`, "infinity"},
	{`{"x": "BC"}`, `{"ce-type": "\u00e4\"\\"}`, "0044-03-15 12:00:00 BC"},
	{`{"x": "far"}`, `{"other": "\n"}`, "20000-01-01 00:00:00+00"},
	{`{"x": 0.1e-7}`, `{"ce-type": "t"}`, "9999-12-31 23:59:59.999999+00"},
}

// insertOdd commits them with keys of a prefix.
func insertOdd(w *scenario.World, prefix string) {
	for i, m := range odd {
		key := fmt.Sprintf("%s-%d", prefix, i)
		w.Exec(`insert into outbox.messages (key, queue, ordering_key, payload, headers, created_at) values ($1, $2, $3, $4, $5, $6::text::timestamptz)`,
			key, scenario.QueueName, fmt.Sprintf("lane %s %d é", prefix, i%2), m.payload, m.headers, m.created)
		w.Committed(scenario.Message{Key: key, OrderingKey: fmt.Sprintf("lane %s %d é", prefix, i%2)})
	}
}

// A message is the same event on every way to the queue: from the WAL, from the
// table after an outage and after a redrive, for one relay and the next.
func TestEnvelope_SameBytesOnEveryWay(t *testing.T) {
	t.Parallel()
	for name, poll := range map[string]bool{"wal": false, "poll": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := brisk(scenario.New(t))
			settle := w.Settle
			if poll {
				w, settle = polling(w), func() { settlePoll(t, w) }
			}
			wrap(w, "cloudevents")
			outage := w.Fault(emulator.Fault{KeyPrefix: "outage-", Status: http.StatusBadGateway})
			w.Fault(emulator.Fault{KeyPrefix: "lost-", Store: true, Cut: emulator.CutReset, Count: 2 * len(odd)})
			refusal := w.Fault(emulator.Fault{KeyPrefix: "refused-", Status: http.StatusUnprocessableEntity})
			r := w.Start()
			for _, prefix := range []string{"outage", "lost", "refused", "live"} {
				insertOdd(w, prefix)
			}
			awaitDeadLetters(t, w, int64(len(odd)))
			awaitDeferred(w, t, int64(len(odd)), `message_id in (select id from outbox.messages where key like 'outage-%')`)
			if err := r.Stop(); err != nil {
				t.Fatal(err)
			}
			w.Queue.RemoveFault(outage)
			w.Queue.RemoveFault(refusal)
			redriveAll(t, operator(w), len(odd))
			w.With(map[string]string{"RELAY_CLOUDEVENTS_TYPE": "another", "RELAY_CLOUDEVENTS_SOURCE": "/another"}).Start()
			settle() // among others: all requests of a key have the same bytes
			noDeadLetters(t, w)
			expectEvents(t, w, func(string) bool { return true })
			expectOdd(t, w)
		})
	}
}

// expectOdd checks that the events say what the rows say.
func expectOdd(t *testing.T, w *scenario.World) {
	t.Helper()
	wrapped, _ := events(w)
	database := strings.TrimPrefix(w.Conn.Config().Database, "/")
	for key, event := range wrapped {
		var digits map[string]json.RawMessage
		if err := json.Unmarshal(event.Data, &digits); err != nil {
			t.Fatal(err)
		}
		var wantTime time.Time
		switch {
		case strings.HasSuffix(key, "-0"):
			wantTime = time.Date(2026, 3, 1, 12, 0, 0, 250001000, time.UTC)
			if event.Type != "order.placed" || string(digits["b"]) != "1.10" || string(digits["neg"]) != "-0.0" && string(digits["neg"]) != "0.0" ||
				string(digits["big"]) != "12345678901234567890123456789012345678901234567890" || len(digits["a"]) != 401 {
				t.Errorf("%s: type %q, data %s", key, event.Type, event.Data)
			}
		case strings.HasSuffix(key, "-1"):
			wantTime = time.Date(2026, 3, 1, 6, 30, 0, 0, time.UTC)
			if event.TraceParent == "" || event.TraceState != "a=1" {
				t.Errorf("%s: trace %q, %q", key, event.TraceParent, event.TraceState)
			}
		case strings.HasSuffix(key, "-2"):
			if event.Source != "https://shop.example/eu" || event.TraceParent != "" {
				t.Errorf("%s: source %q, trace %q", key, event.Source, event.TraceParent)
			}
		case strings.HasSuffix(key, "-3"):
			if event.Source != "/outbox-relay/"+database || event.Type != "outbox-relay.message" {
				t.Errorf("%s: source %q, type %q", key, event.Source, event.Type)
			}
		case strings.HasSuffix(key, "-6"):
			wantTime = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
		}
		if event.ID != key || !strings.HasPrefix(event.Subject, "lane ") || !event.Time.Equal(wantTime) {
			t.Errorf("%s: id %q, subject %q, time %s, want %s", key, event.ID, event.Subject, event.Time, wantTime)
		}
	}
}

// The envelope changes while messages of which nobody knows whether they arrived
// wait in memory and in the table. The queue would refuse other bytes for their
// keys: there are none. What is written after the change has the new envelope.
func TestEnvelope_ChangesWhileMessagesWait(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t)).With(map[string]string{"RELAY_MAX_ATTEMPTS": "1000"})
	lost := w.Fault(emulator.Fault{KeyPrefix: "before-", Store: true, Cut: emulator.CutReset})
	w.Start()
	w.Insert(scenario.Batch("before", 40, "a", "b", "")...)
	w.AwaitRequest("before-2")
	stop := w.Writers(2)
	for round, envelope := range []string{"cloudevents", "none", "cloudevents"} {
		wrap(w, envelope)
		awaitEnvelope(t, w, envelope)
		w.Insert(scenario.Batch(fmt.Sprintf("%s-%d", envelope, round), 10, "a", "b", "")...)
	}
	stop()
	w.Queue.RemoveFault(lost)
	w.Settle()
	noDeadLetters(t, w)
	if got := w.Requests("before-0"); got < 2 {
		t.Errorf("%d requests for a message whose answer was lost", got)
	}
	wrapped, _ := events(w)
	for _, m := range w.Keys() {
		_, isEvent := wrapped[m.Key]
		before := strings.HasPrefix(m.Key, "before-") || strings.HasPrefix(m.Key, "none-")
		if after := strings.HasPrefix(m.Key, "cloudevents-"); (before || after) && isEvent != after {
			t.Errorf("%s arrived as an event: %t", m.Key, isEvent)
		}
	}
}

// A relay is killed when the queue has messages and it has no answers; then the
// envelope changes. What it may have sent keeps its bytes.
func TestEnvelope_ChangesAfterAKill(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	w.Insert(scenario.Batch("m", 50, "a", "b", "c", "")...)
	p := process(t, w, map[string]string{"RELAY_OUTCOME_LINGER": "10m", "RELAY_OUTCOME_BATCH": "100000"})
	w.AwaitAccepted()
	kill(t, p)
	if marked := w.Count(`select count(*) from outbox.dispatched`); marked != 0 {
		t.Fatalf("%d messages are marked: the kill came too late to show anything", marked)
	}
	wrap(w, "cloudevents")
	w.Start()
	awaitEnvelope(t, w, "cloudevents")
	w.Insert(scenario.Batch("after", 10, "a", "")...)
	w.Settle()
	noDeadLetters(t, w)
	expectEvents(t, w, func(key string) bool { return strings.HasPrefix(key, "after-") })
}

// The envelope changes at random moments, and relays are killed at others, with
// many messages accepted and not marked.
func TestEnvelope_ChangesUnderKills(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t)).With(map[string]string{"RELAY_OUTCOME_LINGER": "300ms", "RELAY_OUTCOME_BATCH": "100000"})
	w.Fault(emulator.Fault{Route: "queue.publish", Store: true, Cut: emulator.CutReset, Probability: 0.2, Seed: 1})
	random := seeded(t)
	names := []string{"cloudevents", "none"}
	messages := scenario.Batch("m", 240, "a", "b", "c", "", "")
	for round := range 3 { // after more of them the relay would look for a culprit
		part := messages[round*80 : (round+1)*80]
		wrap(w, names[round%2])
		p := process(t, w, nil)
		w.Insert(part[:40]...)
		if random.IntN(2) == 0 {
			wrap(w, names[1-round%2])
			awaitEnvelope(t, w, names[1-round%2])
		}
		w.Insert(part[40:]...)
		w.AwaitRequest(part[random.IntN(len(part))].Key)
		kill(t, p)
	}
	w.Queue.ClearFaults()
	wrap(w, names[random.IntN(2)])
	process(t, w, nil)
	w.Settle()
	noDeadLetters(t, w)
}

// Before the first relay, and after one that stopped in good order, it is known
// what was never sent: that has the envelope which is set when a relay starts.
func TestEnvelope_ChangesWhileNoRelayRuns(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t))
	w.Insert(scenario.Batch("first", 5)...)
	wrap(w, "cloudevents")
	r := w.Start()
	w.AwaitAccepted()
	lost := w.Fault(emulator.Fault{KeyPrefix: "lost-", Store: true, Cut: emulator.CutReset})
	w.Insert(scenario.Batch("lost", 5, "a")...)
	w.AwaitRequest("lost-0")
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	w.Queue.RemoveFault(lost)
	w.Insert(scenario.Batch("second", 5, "a")...)
	wrap(w, "none")
	w.Start()
	w.Settle()
	noDeadLetters(t, w)
	expectEvents(t, w, func(key string) bool { return !strings.HasPrefix(key, "second-") })
}

// A payload that is as large as the table takes does not fit into a request with
// its envelope: a dead letter says so, and its lane goes on.
func TestEnvelope_TooLarge(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	wrap(w, "cloudevents")
	w.Start()
	w.Insert(scenario.Message{Key: "large", OrderingKey: "a", Payload: `{"x": "` + strings.Repeat("x", 255900) + `"}`},
		scenario.Message{Key: "behind", OrderingKey: "a"})
	awaitDeadLetters(t, w, 1)
	w.Forget("large")
	w.Settle()
	if got := w.Count(`select count(*) from outbox.dead_letters where reason = 'refused' and attempts = 0 and last_status is null
		and last_error like '%bytes with the envelope cloudevents, the limit is 256000'`); got != 1 {
		t.Errorf("%d dead letters say why, want 1", got)
	}
	if n := w.Requests("large"); n != 0 {
		t.Errorf("%d requests for what is too large", n)
	}
}

// Settings through the verbs' own way: nothing else of the queue changes.
func TestEnvelope_BesideOtherSettings(t *testing.T) {
	t.Parallel()
	w := brisk(scenario.New(t))
	o := operator(w)
	w.Start()
	setQueue(t, o, operate.Settings{"envelope": "cloudevents", "paused": true})
	awaitEnvelope(t, w, "cloudevents")
	w.Insert(scenario.Batch("paused", 20, "a", "b")...)
	awaitDeferred(w, t, 20, "true")
	setQueue(t, o, operate.Settings{"paused": false, "ordering": "queue"})
	w.Settle()
	expectEvents(t, w, func(string) bool { return true })
	w.Exec(`delete from outbox.queues`)
	awaitEnvelope(t, w, "none")
	w.Insert(scenario.Batch("default", 5)...)
	w.Settle()
	expectEvents(t, w, func(key string) bool { return strings.HasPrefix(key, "paused-") })
}
