package consumer_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

func TestCloudEvents(t *testing.T) {
	t.Parallel()
	payload := []byte(`{"specversion":"1.0","id":"order-1041-placed","source":"shop","type":"orders","subject":"order-1041",
		"time":"2026-03-01T12:00:00.5+01:00","traceparent":"00-4bf9-00","tracestate":"a=b","datacontenttype":"application/json",
		"extension":"kept","data":{"total":12.50}}`)
	got, err := consumer.CloudEvents(payload)
	if err != nil {
		t.Fatal(err)
	}
	want := consumer.Message{
		ID: "order-1041-placed", Source: "shop", Type: "orders", Subject: "order-1041",
		Time: time.Date(2026, 3, 1, 11, 0, 0, 5e8, time.UTC), TraceParent: "00-4bf9-00", TraceState: "a=b",
		Data: []byte(`{"total":12.50}`), Raw: payload,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCloudEvents_Data(t *testing.T) {
	t.Parallel()
	for member, want := range map[string]string{
		``: "", `,"data":"text"`: `"text"`, `,"data":12345678901234567890.10`: "12345678901234567890.10", `,"data_base64":"aGVsbG8="`: "hello",
	} {
		m, err := consumer.CloudEvents([]byte(`{"specversion":"1.0","id":"1","source":"s","type":"t"` + member + `}`))
		if err != nil || string(m.Data) != want {
			t.Errorf("%s: %q, %v, want %q", member, m.Data, err, want)
		}
	}
}

// What cannot be read is an error that says what is wrong, and repeats nothing of
// it.
func TestEnvelopes_Malformed(t *testing.T) {
	t.Parallel()
	field := consumer.Plain(consumer.Field("order", "id"))
	event := func(members string) string {
		return `{"specversion":"1.0","id":"1","source":"s","type":"t",` + members + `}`
	}
	for payload, envelope := range map[string]consumer.Envelope{
		"":                              field,
		"null":                          field,
		"[]":                            field,
		`"secret"`:                      field,
		"{":                             field,
		`{"order":{}}`:                  field,
		`{"order":"secret"}`:            field,
		`{"Order":{"id":"1"}}`:          field, // names are compared exactly
		`{"order":{"id":null}}`:         field,
		`{"order":{"id":""}}`:           field,
		`{"order":{"id":1.5}}`:          field,
		`{"order":{"id":1e3}}`:          field,
		`{"order":{"id":-1}}`:           field,
		`{"order":{"id":true}}`:         field,
		`{"order":{"id":["secret"]}}`:   field,
		`{"order":{"id":"\u0000"}}`:     field,
		`{"order":{"id":"\ud800"}}`:     field,
		"{\"order\":{\"id\":\"\xff\"}}": field,
		`{"order":{"id":"` + strings.Repeat("x", outbox.MaxEventIDBytes+1) + `"}}`: field,
		`{"order":{"id":"1"}} {}`:          field,
		"{}":                               consumer.CloudEvents,
		"[{}]":                             consumer.CloudEvents,
		event(`"specversion":"0.3"`):       consumer.CloudEvents,
		event(`"id":""`):                   consumer.CloudEvents,
		event(`"id":7`):                    consumer.CloudEvents,
		event(`"id":null,"ID":"1"`):        consumer.CloudEvents,
		event(`"source":""`):               consumer.CloudEvents,
		event(`"type":{}`):                 consumer.CloudEvents,
		event(`"subject":5`):               consumer.CloudEvents,
		event(`"time":"secret"`):           consumer.CloudEvents,
		event(`"data_base64":"%"`):         consumer.CloudEvents,
		event(`"data_base64":"","data":1`): consumer.CloudEvents,
	} {
		_, err := envelope([]byte(payload))
		if !errors.Is(err, consumer.ErrMalformed) || !consumer.IsPermanent(err) {
			t.Errorf("%q: %v, want malformed", payload, err)
			continue
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error repeats it: %v", payload, err)
		}
	}
}

func TestField(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"id":"order-1"}`:                      "order-1",
		`{"id":1041}`:                           "1041",
		`{"id":123456789012345678901234567890}`: "123456789012345678901234567890",
		` { "id" : 0 } `:                        "0",
		`{"id":"a","id":"b"}`:                   "b",
		`{"id":"\u00e4 \ud83d\ude00"}`:          "\u00e4 \U0001F600",
	} {
		if got, err := consumer.Field("id")([]byte(payload)); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", payload, got, err, want)
		}
	}
}

// Hostile bytes give an error or an id that can be claimed.
func FuzzEnvelopes(f *testing.F) {
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"s","type":"t","time":"2026-03-01T12:00:00Z","data_base64":"aGk="}`))
	f.Add([]byte(`{"id":"\ud800"}`))
	f.Add([]byte("{\"id\":\"\xff\"}"))
	f.Add([]byte(`{"id":[[[[[[`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, envelope := range []consumer.Envelope{consumer.CloudEvents, consumer.Plain(consumer.Field("id"))} {
			m, err := envelope(payload)
			if err != nil {
				if !errors.Is(err, consumer.ErrMalformed) {
					t.Errorf("%v", err)
				}
				continue
			}
			if m.ID == "" || len(m.ID) > outbox.MaxEventIDBytes || !utf8.ValidString(m.ID) || strings.ContainsRune(m.ID, 0) {
				t.Errorf("the id %q cannot be claimed", m.ID)
			}
		}
	})
}

// An envelope of the application's own that panics costs nobody else anything: the
// delivery is malformed.
func TestEnvelope_Panics(t *testing.T) {
	t.Parallel()
	broken := func(payload []byte) (consumer.Message, error) {
		return consumer.Message{ID: string(payload[1000])}, nil
	}
	reports := make(chan consumer.Report, 1)
	url := serve(t, newLedger(t).once(book), consumer.Sender{Verify: consumer.Unsigned, Read: consumer.BodyID(broken)},
		consumer.ReceiverConfig{Report: func(r consumer.Report) { reports <- r }})
	if status, _ := deliver(t, url, nil, "{}"); status != http.StatusBadRequest {
		t.Errorf("%d, want 400", status)
	}
	report := <-reports
	if _, thrown := errors.AsType[*consumer.PanicError](report.Err); !thrown || !errors.Is(report.Err, consumer.ErrMalformed) {
		t.Errorf("%v", report.Err)
	}
}
