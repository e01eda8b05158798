package infrai_test

import (
	"bytes"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
)

var shopEvents = outbox.Envelope{Name: relay.CloudEvents, Source: "/shop", Type: "message"}

const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// The bytes below are a promise, too.
func TestAppendBody_CloudEventsNeverChange(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 13, 0, 0, 250_000_000, time.FixedZone("", 3600))
	tests := map[string]struct {
		row  outbox.Row
		want string
	}{
		"least": {
			outbox.Row{Key: "k", Queue: "q", Payload: `{}`},
			`{"data":{},"datacontenttype":"application/json","id":"k","source":"/shop","specversion":"1.0","type":"message"}`,
		},
		"all attributes": {
			outbox.Row{
				Key: "order:17", Queue: "q", OrderingKey: "order-17", Payload: `{"b": 1.10, "a": [1e400]}`, CreatedAt: noon,
				Headers: `{"other": "x", "ce-type": "order.placed", "ce-source": "https://shop.example/eu", "tracestate": "a=1, b=2", "traceparent": "` + trace + `"}`,
			},
			`{"data":{"a":[1e400],"b":1.10},"datacontenttype":"application/json","id":"order:17","source":"https://shop.example/eu",` +
				`"specversion":"1.0","subject":"order-17","time":"2026-03-01T12:00:00.25Z","traceparent":"` + trace + `","tracestate":"a=1, b=2","type":"order.placed"}`,
		},
		"text": {
			outbox.Row{Key: `"q\`, Queue: "q", OrderingKey: "é\"\\\U0001f600", Payload: `{}`, Headers: `{"ce-type": "\u0041\/ä\""}`},
			`{"data":{},"datacontenttype":"application/json","id":"\"q\\","source":"/shop","specversion":"1.0","subject":"é\"\\` + "\U0001f600" + `","type":"A/ä\""}`,
		},
		"microseconds": {
			outbox.Row{Key: "k", Queue: "q", Payload: `{}`, CreatedAt: time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC)},
			`{"data":{},"datacontenttype":"application/json","id":"k","source":"/shop","specversion":"1.0","time":"0001-01-01T00:00:00.000001Z","type":"message"}`,
		},
		"what an event need not have is left out": {
			outbox.Row{
				Key: "k", Queue: "q", Payload: `{}`, OrderingKey: "two\nlines", CreatedAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC),
				Headers: `{"traceparent": "00-0", "tracestate": "a=1"}`,
			},
			`{"data":{},"datacontenttype":"application/json","id":"k","source":"/shop","specversion":"1.0","type":"message"}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.row.Envelope = &shopEvents
			got, err := infrai.AppendBody(nil, &test.row)
			if err != nil {
				t.Fatal(err)
			}
			key, _ := json.Marshal(test.row.Key)
			want := `{"idempotency_key":` + string(key) + `,"payload":` + test.want + `,"queue":"q"}` + "\n"
			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAppendBody_TraceParent(t *testing.T) {
	t.Parallel()
	for text, valid := range map[string]bool{
		trace: true, "01" + trace[2:]: true, "01" + trace[2:] + "-more": true,
		"": false, trace + "-more": false, "01" + trace[2:] + "more": false, "ff" + trace[2:]: false, strings.ToUpper(trace): false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false, "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": false,
		strings.Replace(trace, "-", "_", 1): false, trace[:54]: false, trace[:54] + "\u00e4": false,
	} {
		headers, _ := json.Marshal(map[string]string{"traceparent": text, "tracestate": "a=1"})
		event := eventOf(t, &outbox.Row{Key: "k", Queue: "q", Payload: `{}`, Headers: string(headers), Envelope: &shopEvents})
		if _, has := event["traceparent"]; has != valid {
			t.Errorf("traceparent %q is in the event: %t", text, has)
		}
		if _, has := event["tracestate"]; has != valid {
			t.Errorf("tracestate beside %q is in the event: %t", text, has)
		}
	}
}

// What would be another event than the application wanted is not sent.
func TestAppendBody_RefusesWhatIsNoEvent(t *testing.T) {
	t.Parallel()
	for headers, want := range map[string]string{
		`{"ce-type": ""}`:                    "the header ce-type is empty",
		`{"ce-type": "a\nb"}`:                "the header ce-type",
		`{"ce-type": "\uffff"}`:              "the header ce-type",
		`{"ce-type": 1}`:                     "not a JSON object of strings",
		`{"ce-source": ""}`:                  "the header ce-source",
		`{"ce-source": "a b"}`:               "the header ce-source",
		`{"ce-source": "http://[::1"}`:       "the header ce-source",
		`{"ce-source": "<secret-1>"}`:        "the header ce-source",
		`["ce-type"]`:                        "not a JSON object of strings",
		`{"ce-type": "t", secret-1`:          "not a JSON object of strings",
		"{\"ce-type\": \"\xffsecret-1\"}":    "not a JSON object of strings",
		`{"ce-type": "t"`:                    "not a JSON object of strings",
		`{"x": {"ce-type": ["deep", 1, {}]}`: "not a JSON object of strings",
	} {
		_, err := infrai.AppendBody(nil, &outbox.Row{Key: "k", Queue: "q", Payload: `{}`, Headers: headers, Envelope: &shopEvents})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("headers %s: %v, want %q", headers, err, want)
		} else if strings.Contains(err.Error(), "secret-1") {
			t.Errorf("headers %s: the error %q repeats data", headers, err)
		}
	}
	_, err := infrai.AppendBody(nil, &outbox.Row{Key: "k", Queue: "q", Payload: `{}`, Envelope: &outbox.Envelope{Name: "xml"}})
	if err == nil || !strings.Contains(err.Error(), `the envelope "xml" is not known`) {
		t.Errorf("unknown envelope: %v", err)
	}
	if _, err := infrai.AppendBody(nil, &outbox.Row{Key: "k", Queue: "q", Payload: `{"a":1,"a":2}`, Envelope: &shopEvents}); err == nil {
		t.Error("a payload with two members of one name became data")
	}
}

// A payload that fits alone may not fit with its envelope: a dead letter, which
// says so.
func TestPublish_EventAboveTheLimit(t *testing.T) {
	t.Parallel()
	cfg := settings("http://127.0.0.1:1")
	cfg.MaxBodyBytes = 1000
	row := outbox.Row{Key: "k", Queue: "q", Payload: `{"a": "` + strings.Repeat("x", 900) + `"}`, Envelope: &shopEvents}
	_, err := newPublisher(t, cfg).Publish(t.Context(), &row)
	got := refusal(t, err)
	want := "cannot be sent: the request has 1064 bytes with the envelope cloudevents, the limit is 1000"
	if got.Class != relay.Refused || got.Status != 0 || got.Message != want {
		t.Errorf("%s: %q, want %q", got.Class, got.Message, want)
	}
}

// TestAppendBody_EventsAreValid holds for any message that is sent: the event is
// one by the rules of CloudEvents, means what the message means, and a consumer
// reads it.
func TestAppendBody_EventsAreValid(t *testing.T) {
	t.Parallel()
	text := rapid.StringN(0, 20, -1)
	member := rapid.OneOf(text, rapid.SampledFrom([]string{"", trace, "a=1", "order.placed", "https://shop.example/", "/x"}))
	name := rapid.OneOf(text, rapid.SampledFrom([]string{"ce-type", "ce-source", "traceparent", "tracestate"}))
	rapid.Check(t, func(t *rapid.T) {
		headers, _ := json.Marshal(rapid.MapOfN(name, member, 0, 6).Draw(t, "headers"))
		payload, _ := json.Marshal(rapid.MapOf(text, rapid.OneOf(rapid.Float64().AsAny(), text.AsAny(), rapid.SliceOf(text).AsAny())).Draw(t, "payload"))
		row := outbox.Row{
			Key: rapid.StringMatching(`[!-~]{1,128}`).Draw(t, "key"), Queue: "q", OrderingKey: text.Draw(t, "ordering key"),
			Payload: string(payload), Headers: string(headers), Envelope: &shopEvents,
			CreatedAt: time.UnixMicro(rapid.Int64Range(-63e15, 260e15).Draw(t, "created at")),
		}
		body, err := infrai.AppendBody(nil, &row)
		if err == nil {
			checkEvent(t, &row, body)
		}
	})
}

func FuzzAppendBody_CloudEvents(f *testing.F) {
	f.Add("k", "o", `{"b": 1, "a": [1.10, 1e400]}`, `{"ce-type": "t", "traceparent": "`+trace+`", "tracestate": "a=1"}`, "/shop", "message", int64(1772366400000000))
	f.Add(`"\`, "\u2028", `{"a": "\ud83d\ude00\/"}`, `{"\u0063e-source": "urn:x"}`, "https://shop.example/", "t", int64(-62135596800000000))
	f.Add("k", "\x00", `{}`, `{"ce-type": "\ud800"}`, "", "", int64(0))
	f.Fuzz(func(t *testing.T, key, orderingKey, payload, headers, source, eventType string, created int64) {
		row := outbox.Row{
			Key: key, Queue: "q", OrderingKey: orderingKey, Payload: payload, Headers: headers, CreatedAt: time.UnixMicro(created),
			Envelope: &outbox.Envelope{Name: relay.CloudEvents, Source: source, Type: eventType},
		}
		body, err := infrai.AppendBody(nil, &row)
		if err != nil {
			return
		}
		checkEvent(t, &row, body)
		row.Headers, row.OrderingKey = "", ""
		if _, err := infrai.AppendBody(nil, &row); err != nil && headers == "" {
			t.Fatalf("without headers: %v", err)
		}
	})
}

// fataler is a test, or one try of a property.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkEvent holds a body against the rules of CloudEvents 1.0 and against what
// the row means.
func checkEvent(t fataler, row *outbox.Row, body []byte) {
	t.Helper()
	var sent struct {
		Payload json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(body, &sent); err != nil || !utf8.Valid(body) {
		t.Fatalf("body %q is not JSON: %v", body, err)
	}
	var event map[string]json.RawMessage
	if err := json.Unmarshal(sent.Payload, &event); err != nil {
		t.Fatalf("event %q: %v", sent.Payload, err)
	}
	for name, raw := range event {
		if name == "data" {
			continue
		}
		var value string
		if err := json.Unmarshal(raw, &value); err != nil || value == "" || forbidden.MatchString(value) {
			t.Fatalf("attribute %s is %s", name, raw)
		}
		if !attributeName.MatchString(name) {
			t.Fatalf("attribute name %q", name)
		}
		if rule := rules[name]; rule == nil || !rule(value) {
			t.Fatalf("attribute %s is %q", name, value)
		}
	}
	for _, name := range []string{"id", "source", "specversion", "type"} {
		if event[name] == nil {
			t.Fatalf("attribute %s is missing in %s", name, sent.Payload)
		}
	}
	got, err := consumer.CloudEvents(sent.Payload)
	if err != nil {
		t.Fatalf("a consumer cannot read %s: %v", sent.Payload, err)
	}
	if got.ID != row.Key || got.Subject != "" && got.Subject != row.OrderingKey || !got.Time.IsZero() && !got.Time.Equal(row.CreatedAt) {
		t.Fatalf("a consumer reads %+v of %+v", got, row)
	}
	bare, err := infrai.AppendBody(nil, &outbox.Row{Key: row.Key, Queue: row.Queue, Payload: row.Payload})
	if err != nil || !bytes.Contains(bare, append([]byte(`"payload":`), got.Data...)) {
		t.Fatalf("data %s, want the canonical payload as in %s (%v)", got.Data, bare, err)
	}
}

// The rules of the specification, as far as they can be tested: attribute names,
// characters of a string, and what each attribute is.
var (
	attributeName = regexp.MustCompile(`^[a-z0-9]+$`)
	forbidden     = regexp.MustCompile(`[\x{0}-\x{1f}\x{7f}-\x{9f}\x{fdd0}-\x{fdef}\x{fffe}\x{ffff}\x{1fffe}\x{1ffff}\x{10fffe}\x{10ffff}]`)
	rules         = map[string]func(string) bool{
		"id":              func(s string) bool { return s != "" },
		"source":          func(s string) bool { _, err := url.Parse(s); return err == nil && !strings.Contains(s, " ") },
		"specversion":     func(s string) bool { return s == "1.0" },
		"type":            func(s string) bool { return s != "" },
		"datacontenttype": func(s string) bool { return s == "application/json" },
		"subject":         func(s string) bool { return s != "" },
		"time": func(s string) bool {
			_, err := time.Parse(time.RFC3339Nano, s)
			return err == nil && regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$`).MatchString(s)
		},
		"traceparent": regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?$`).MatchString,
		"tracestate":  regexp.MustCompile(`^[ -~]+$`).MatchString,
	}
)

// eventOf returns the members of the event that a row is.
func eventOf(t *testing.T, row *outbox.Row) (event map[string]json.RawMessage) {
	t.Helper()
	body, err := infrai.AppendBody(nil, row)
	if err != nil {
		t.Fatal(err)
	}
	checkEvent(t, row, body)
	var sent struct {
		Payload map[string]json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatal(err)
	}
	return sent.Payload
}
