package infrai_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
)

// The bytes below are a promise: a message that was sent by an older relay and
// goes out again must have the same ones.
func TestAppendBody_NeverChanges(t *testing.T) {
	t.Parallel()
	five := pgtype.Int4{Int32: 5, Valid: true}
	zero := pgtype.Int4{Int32: 0, Valid: true}
	tests := map[string]struct {
		row  outbox.Row
		want string
	}{
		"least": {
			outbox.Row{Key: "k", Queue: "q", Payload: `{}`},
			`{"idempotency_key":"k","payload":{},"queue":"q"}`,
		},
		"all members": {
			outbox.Row{Key: "order:17", Queue: "orders", Payload: `{"a": 1}`, DelaySeconds: five, Priority: zero},
			`{"delay_seconds":5,"idempotency_key":"order:17","payload":{"a":1},"priority":0,"queue":"orders"}`,
		},
		// SCH-10: numbers keep the digits that Postgres prints.
		"digits": {
			outbox.Row{Key: "k", Queue: "q", Payload: `{"e": 1e400, "f": 1.10, "big": 1234567890123456789012345678901234567890, "neg": -0}`},
			`{"idempotency_key":"k","payload":{"big":1234567890123456789012345678901234567890,"e":1e400,"f":1.10,"neg":-0},"queue":"q"}`,
		},
		"members sorted at every depth": {
			outbox.Row{Key: "k", Queue: "q", Payload: `{"b": {"z": [{"y": 1, "x": [ ]}], "a": null}, "a": true, "aa": false, "a b": { }}`},
			`{"idempotency_key":"k","payload":{"a":true,"a b":{},"aa":false,"b":{"a":null,"z":[{"x":[],"y":1}]}},"queue":"q"}`,
		},
		"text": {
			outbox.Row{Key: `"q\`, Queue: "q", Payload: `{"s": "\u0041\/\"\\\n\u001f\ud83d\ude00 é <&>"}`},
			`{"idempotency_key":"\"q\\","payload":{"s":"A/\"\\\n\u001f` + "\U0001f600" + ` é <&>"},"queue":"q"}`,
		},
		"names with escapes": {
			outbox.Row{Key: "k", Queue: "q", Payload: `{"z": 1, "\u0061\n": 2, "a": 3, "é": 4, "\"": 5, "!": 6}`},
			`{"idempotency_key":"k","payload":{"!":6,"\"":5,"a":3,"a\n":2,"z":1,"é":4},"queue":"q"}`,
		},
		"headers stay at home": {
			outbox.Row{Key: "k", Queue: "q", Payload: `{}`, Headers: `{"x": "1"}`, OrderingKey: "o"},
			`{"idempotency_key":"k","payload":{},"queue":"q"}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := infrai.AppendBody(nil, &test.row)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want+"\n", string(got)); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAppendBody_ManyMembers(t *testing.T) {
	t.Parallel()
	wide := map[string]int{}
	for i := range 300 {
		wide[strings.Repeat("k", i%7)+string(rune('a'+i%26))+strings.Repeat("x", i/26)] = i
	}
	sorted, err := json.Marshal(wide)
	if err != nil {
		t.Fatal(err)
	}
	var reversed bytes.Buffer
	reversed.WriteByte('{')
	members := strings.Split(strings.Trim(string(sorted), "{}"), ",")
	for i, member := range slices.Backward(members) {
		reversed.WriteString(member)
		if i > 0 {
			reversed.WriteString(", ")
		}
	}
	reversed.WriteByte('}')
	got, err := infrai.AppendBody(nil, &outbox.Row{Key: "k", Queue: "q", Payload: reversed.String()})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"idempotency_key":"k","payload":` + string(sorted) + `,"queue":"q"}` + "\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

// APP-07 and SEC-02: what cannot be sent becomes a dead letter with its reason,
// and no request goes out.
func TestPublish_RefusesWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	cfg := settings(answering(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	cfg.MaxBodyBytes = 1000
	p := newPublisher(t, cfg)

	good := outbox.Row{Key: "k", Queue: "q", Payload: `{}`}
	with := func(change func(*outbox.Row)) outbox.Row {
		row := good
		change(&row)
		return row
	}
	tests := map[string]struct {
		row    outbox.Row
		reason string
	}{
		"no key":              {with(func(r *outbox.Row) { r.Key = "" }), "the key is missing"},
		"long key":            {with(func(r *outbox.Row) { r.Key = strings.Repeat("k", 129) }), "longer than 128"},
		"key with space":      {with(func(r *outbox.Row) { r.Key = "a b" }), "printable ASCII"},
		"key with newline":    {with(func(r *outbox.Row) { r.Key = "a\r\nX-Admin: yes" }), "printable ASCII"},
		"key with umlaut":     {with(func(r *outbox.Row) { r.Key = "k\u00e4" }), "printable ASCII"},
		"no queue":            {with(func(r *outbox.Row) { r.Queue = "" }), "the queue is missing"},
		"queue in capitals":   {with(func(r *outbox.Row) { r.Queue = "Orders" }), "queue's name"},
		"queue begins wrong":  {with(func(r *outbox.Row) { r.Queue = "-orders" }), "queue's name"},
		"queue with a quote":  {with(func(r *outbox.Row) { r.Queue = `q","x":"` }), "queue's name"},
		"long queue":          {with(func(r *outbox.Row) { r.Queue = strings.Repeat("q", 64) }), "queue's name"},
		"no payload":          {with(func(r *outbox.Row) { r.Payload = "" }), "the payload is missing"},
		"payload null":        {with(func(r *outbox.Row) { r.Payload = "null" }), "not a JSON object"},
		"payload string":      {with(func(r *outbox.Row) { r.Payload = `""` }), "not a JSON object"},
		"payload array":       {with(func(r *outbox.Row) { r.Payload = `[1]` }), "not a JSON object"},
		"payload broken":      {with(func(r *outbox.Row) { r.Payload = `{"a": secret-1}` }), "not valid JSON"},
		"payload goes on":     {with(func(r *outbox.Row) { r.Payload = `{"a": 1} {}` }), "not valid JSON"},
		"payload not UTF-8":   {with(func(r *outbox.Row) { r.Payload = "{\"a\": \"\xff\"}" }), "not valid UTF-8"},
		"payload member x2":   {with(func(r *outbox.Row) { r.Payload = `{"a": 1, "b": 2, "a": 3}` }), "two members of one name"},
		"payload bottomless":  {with(func(r *outbox.Row) { r.Payload = strings.Repeat(`{"a":`, 5000) }), "not valid JSON"},
		"payload above limit": {with(func(r *outbox.Row) { r.Payload = `{"a": "` + strings.Repeat("x", 1000) + `"}` }), "the request has 1055 bytes, the limit is 1000"},
	}
	for name, test := range tests {
		_, err := p.Publish(t.Context(), &test.row)
		got := refusal(t, err)
		if got.Class != relay.Refused || got.Status != 0 {
			t.Errorf("%s: class %s, status %d, want refused without a status", name, got.Class, got.Status)
		}
		if !strings.Contains(got.Message, test.reason) {
			t.Errorf("%s: message %q, want it to say %q", name, got.Message, test.reason)
		}
		if strings.Contains(err.Error(), "secret-1") || strings.ContainsAny(err.Error(), "\r\n") {
			t.Errorf("%s: the error %q repeats data", name, err)
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests went out, want 0", n)
	}
}

// FuzzAppendBody holds that a body is canonical and means what the payload
// means, whatever the payload is.
func FuzzAppendBody(f *testing.F) {
	f.Add(`{"b": 1, "a": [1.10, 1e400, -0, {"z": null, "y": "\u0000\ud83d\ude00\/"}], "": {}}`)
	f.Add(`{"a\u0000": 1, "a": 2, "a\"": 3, "aaaaaaaaa": 4, "aaaaaaaab": 5}`)
	f.Add(`{"a":1,"a":2}`)
	f.Add(`{"a":"\ud800"}`)
	f.Add(`[`)
	f.Fuzz(func(t *testing.T, payload string) {
		row := outbox.Row{Key: "k", Queue: "q", Payload: payload}
		body, err := infrai.AppendBody(nil, &row)
		if err != nil {
			return
		}
		var sent struct {
			Payload json.RawMessage `json:"payload"`
		}
		if err := json.Unmarshal(body, &sent); err != nil {
			t.Fatalf("body %q is not JSON: %v", body, err)
		}
		if got, want := meaning(t, string(sent.Payload)), meaning(t, payload); !cmp.Equal(got, want) {
			t.Fatalf("payload %q became %q", payload, sent.Payload)
		}
		row.Payload = string(sent.Payload)
		again, err := infrai.AppendBody(nil, &row)
		if err != nil || !bytes.Equal(body, again) {
			t.Fatalf("body %q became %q (%v) at the second time", body, again, err)
		}
		if want := plain(t, payload); string(sent.Payload) != want {
			t.Fatalf("payload %q, want it canonical: %q", sent.Payload, want)
		}
	})
}

// meaning decodes JSON with the digits of its numbers.
func meaning(t *testing.T, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		t.Fatalf("a payload that was taken is not JSON: %q: %v", text, err)
	}
	return value
}

// plain writes JSON canonically the slow way: encoding/json sorts members too,
// and escapes only two characters more.
func plain(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(meaning(t, text)); err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.TrimSuffix(b.String(), "\n"))
}
