package relay

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/outbox-relay/outbox-relay/outbox"
)

func TestWrappings_Of(t *testing.T) {
	t.Parallel()
	event := &outbox.Envelope{Name: CloudEvents, Source: "/a", Type: "t"}
	other := &outbox.Envelope{Name: CloudEvents, Source: "/b", Type: "t"}
	w := wrappings{{10, event}, {20, nil}, {21, other}}
	for id, want := range map[int64]*outbox.Envelope{1: nil, 9: nil, 10: event, 19: event, 20: nil, 21: other, 1000: other} {
		if got := w.of(id); got != want {
			t.Errorf("message %d has the envelope %v, want %v", id, got, want)
		}
	}
	if got := wrappings(nil).of(5); got != nil {
		t.Errorf("without any change a message has the envelope %v", got)
	}
}

// What was said of a message stays true, whatever changes come later.
func TestWrappings_AMessageKeepsItsEnvelope(t *testing.T) {
	t.Parallel()
	kinds := []*outbox.Envelope{nil, {Name: CloudEvents, Source: "/a"}, {Name: CloudEvents, Source: "/b"}}
	rapid.Check(t, func(t *rapid.T) {
		var w wrappings
		said := map[int64]*outbox.Envelope{}
		next := int64(1)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "change") {
				w = append(w, wrapping{next, rapid.SampledFrom(kinds).Draw(t, "kind")})
			}
			for range rapid.IntRange(1, 5).Draw(t, "messages") {
				said[next] = w.of(next)
				if said[next] != w.last() {
					t.Fatalf("message %d does not have the last envelope", next)
				}
				next++
			}
			for id, before := range said {
				if got := w.of(id); got != before {
					t.Fatalf("message %d had the envelope %v and has %v", id, before, got)
				}
			}
		}
	})
}

// While a change is not on record nothing goes out to its queue, and other queues
// go on. Then what was there before keeps what it had.
func TestRouter_NothingGoesOutWhileAnEnvelopeTurns(t *testing.T) {
	event := &outbox.Envelope{Name: CloudEvents, Source: "/a", Type: "t"}
	r := newRig(testConfig())
	before, other := r.put("q", ""), r.put("other", "")
	r.apply(r.now, map[string]Settings{"q": {Envelope: event}, "new": {Envelope: event}})
	r.put("new", "")
	if got := r.takeOne(); got != other || got.row.Envelope != nil {
		t.Fatalf("took %v, want the message of the other queue, bare", got)
	}
	if got := r.takeOne(); got != nil {
		t.Fatalf("took message %d of a queue whose envelope changes", got.row.ID)
	}
	r.apply(r.now, map[string]Settings{
		"q": {Envelope: event, wrappings: wrappings{{3, event}}}, "new": {Envelope: event, wrappings: wrappings{{3, event}}},
	})
	after := r.put("q", "")
	took := map[int64]*outbox.Envelope{}
	for m := r.takeOne(); m != nil; m = r.takeOne() {
		took[m.row.ID] = m.row.Envelope
	}
	if len(took) != 3 || took[before.row.ID] != nil || took[3] != event || took[after.row.ID] != event {
		t.Errorf("envelopes by message: %v", took)
	}
}

func TestConfig_Envelope(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		"": true, "/shop": true, "https://shop.example/eu": true, "urn:shop:eu": true,
		"a b": false, "http://[::1": false, "/é": false, `/"`: false, "<shop>": false, "\n": false,
	} {
		c := Config{CloudEventsSource: value, CloudEventsType: "t"}
		if err := c.validateEnvelope(); (err == nil) != want {
			t.Errorf("CLOUDEVENTS_SOURCE %q: %v", value, err)
		}
	}
	for value, want := range map[string]bool{"t": true, "com.example.order placed": true, "": false, "a\nb": false, "\xff": false} {
		c := Config{CloudEventsType: value}
		if err := c.validateEnvelope(); (err == nil) != want {
			t.Errorf("CLOUDEVENTS_TYPE %q: %v", value, err)
		}
	}
}
