package infrai_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/outbox-relay/outbox-relay/relay"
)

const (
	accepted = `{"ok":true,"data":{"message_id":"msg_1","more":[1,{"x":2}]},"error":null,"metadata":{"cost_usd":0.1,"request_id":"req_1"},"new":1}`
	htmlPage = `<html><body>Bad gateway</body></html>`
)

func refused(code string) string {
	return fmt.Sprintf(`{"ok":false,"data":null,"error":{"code":%q,"message":"about the payload","hint":"h"},"metadata":{}}`, code)
}

// The table of the package's documentation, case by case.
func TestPublish_ClassifiesEveryAnswer(t *testing.T) {
	t.Parallel()
	type answer struct {
		status int
		body   string
	}
	const none = relay.Class(0)
	tests := []struct {
		answer
		class relay.Class
		code  string
	}{
		{answer{200, accepted}, none, ""},
		{answer{201, accepted}, none, ""},
		{answer{202, " " + accepted + "\n"}, none, ""},
		{answer{299, `{"ok":true}`}, none, ""},
		{answer{200, `{"ok":true,"data":null,"metadata":{}}`}, none, ""},
		{answer{200, `{"ok":true,"data":{"message_id":17}}`}, none, ""},

		// HTTP-07: a 2xx that is no success.
		{answer{200, `{"error":"quota"}`}, relay.UnknownOutcome, ""},
		{answer{200, `{"ok":"true"}`}, relay.UnknownOutcome, ""},
		{answer{200, `{"ok":true} {}`}, relay.UnknownOutcome, ""},
		{answer{200, `{"ok":true,"data":{"message_id":`}, relay.UnknownOutcome, ""},
		{answer{200, `[]`}, relay.UnknownOutcome, ""},
		{answer{200, ``}, relay.UnknownOutcome, ""},
		{answer{200, htmlPage}, relay.UnknownOutcome, ""},
		{answer{200, `{"ok":true,"x":"` + strings.Repeat("x", 100_000) + `"}`}, relay.UnknownOutcome, ""},
		{answer{204, ``}, relay.UnknownOutcome, ""},
		{answer{206, accepted}, relay.UnknownOutcome, ""},
		{answer{207, accepted}, relay.UnknownOutcome, ""},
		{answer{200, refused("QUOTA_EXCEEDED")}, relay.Refused, "QUOTA_EXCEEDED"},
		{answer{200, refused("QUEUE_NOT_FOUND")}, relay.QueueClosed, "QUEUE_NOT_FOUND"},
		{answer{200, refused("INSUFFICIENT_CREDIT")}, relay.EndpointClosed, "INSUFFICIENT_CREDIT"},

		{answer{300, ``}, relay.EndpointClosed, ""},
		{answer{304, ``}, relay.EndpointClosed, ""},
		{answer{400, refused("INVALID_ARGUMENT")}, relay.Refused, "INVALID_ARGUMENT"},
		{answer{400, refused("QUEUE_NOT_FOUND")}, relay.QueueClosed, "QUEUE_NOT_FOUND"},
		{answer{400, refused("a piece of data")}, relay.Refused, ""},
		{answer{400, htmlPage}, relay.Refused, ""},
		{answer{401, refused("UNAUTHORIZED")}, relay.EndpointClosed, "UNAUTHORIZED"},
		{answer{402, refused("INSUFFICIENT_CREDIT")}, relay.EndpointClosed, "INSUFFICIENT_CREDIT"},
		{answer{403, ``}, relay.EndpointClosed, ""},
		{answer{404, refused("QUEUE_NOT_FOUND")}, relay.QueueClosed, "QUEUE_NOT_FOUND"},
		{answer{404, htmlPage}, relay.QueueClosed, ""},
		{answer{405, ``}, relay.EndpointClosed, ""},
		{answer{407, ``}, relay.EndpointClosed, ""},
		{answer{408, ``}, relay.Transient, ""},
		{answer{409, refused("IDEMPOTENCY_CONFLICT")}, relay.Conflict, "IDEMPOTENCY_CONFLICT"},
		{answer{413, ``}, relay.Refused, ""},
		{answer{415, ``}, relay.Refused, ""},
		{answer{418, ``}, relay.Refused, ""},
		{answer{421, ``}, relay.Transient, ""},
		{answer{422, refused("VALIDATION_FAILED")}, relay.Refused, "VALIDATION_FAILED"},
		{answer{425, ``}, relay.Transient, ""},
		{answer{426, ``}, relay.EndpointClosed, ""},
		{answer{429, refused("RATE_LIMITED")}, relay.RateLimited, "RATE_LIMITED"},
		{answer{499, ``}, relay.Refused, ""},

		// HTTP-08: a proxy's page is what its status says.
		{answer{500, refused("INTERNAL")}, relay.Transient, "INTERNAL"},
		{answer{502, htmlPage}, relay.Transient, ""},
		{answer{503, strings.Repeat(htmlPage, 3000)}, relay.Transient, ""},
		{answer{504, htmlPage}, relay.Transient, ""},
		{answer{520, htmlPage}, relay.Transient, ""},
		{answer{599, htmlPage}, relay.Transient, ""},
	}
	answers := map[string]answer{}
	for i, test := range tests {
		answers[fmt.Sprintf("k%d", i)] = test.answer
	}
	p := newPublisher(t, settings(answering(t, func(w http.ResponseWriter, r *http.Request) {
		a := answers[r.Header.Get("Idempotency-Key")]
		w.Header().Set("X-Infrai-Request-Id", "from-the-header")
		w.WriteHeader(a.status)
		if a.status != http.StatusNoContent && a.status != http.StatusNotModified {
			_, _ = w.Write([]byte(a.body))
		}
	})))
	for i, test := range tests {
		receipt, err := p.Publish(t.Context(), message(fmt.Sprintf("k%d", i)))
		if test.class == none {
			if err != nil {
				t.Errorf("%d %.60s: error %v, want it accepted", test.status, test.body, err)
			}
			continue
		}
		got := refusal(t, err)
		if got.Class != test.class || got.Status != test.status || got.Code != test.code {
			t.Errorf("%d %.60s: class %s, status %d, code %q, want %s and %q", test.status, test.body, got.Class, got.Status, got.Code, test.class, test.code)
		}
		if got.RequestID != "from-the-header" && test.body != accepted {
			t.Errorf("%d %.60s: request id %q", test.status, test.body, got.RequestID)
		}
		if receipt != (relay.Receipt{}) {
			t.Errorf("%d %.60s: receipt %v with an error", test.status, test.body, receipt)
		}
		if text := err.Error(); strings.Contains(text, "about the payload") || strings.Contains(text, "<") || len(text) > 200 {
			t.Errorf("%d %.60s: the error says too much: %q", test.status, test.body, text)
		}
	}
}

func TestPublish_ReturnsTheReceipt(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, settings(answering(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(accepted)) })))
	got, err := p.Publish(t.Context(), message("k"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (relay.Receipt{QueueMessageID: "msg_1", RequestID: "req_1"}); got != want {
		t.Errorf("receipt %+v, want %+v", got, want)
	}
}

func TestPublish_KeepsTheQueuesTextIfAsked(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\u00e9", 300)
	texts := map[string]string{
		`{"ok":false,"error":{"code":"X","message":"line one\nline two\u0007"}}`:  "line one line two ",
		`{"ok":false,"error":{"code":"X","message":"","hint":"try another"}}`:     "try another",
		`{"ok":false,"error":{"code":"X","message":"` + long + `"}}`:              long[:200],
		`{"ok":false,"error":{"code":"X","message":"a` + long + `"}}`:             "a" + long[:198],
		`{"ok":false,"error":{"code":"X","message":{"deep":"object"}}}`:           "",
		`{"ok":false,"error":"X"}`:                                                "",
		`{"ok":false,"error":{"message":"m1"},"data":{"error":{"message":"no"}}}`: "m1",
	}
	for body, want := range texts {
		cfg := settings(answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(body))
		}))
		cfg.ErrorText = true
		_, err := newPublisher(t, cfg).Publish(t.Context(), message("k"))
		if got := refusal(t, err).Message; got != want {
			t.Errorf("%s: message %q, want %q", body, got, want)
		}
	}
}

// APP-05: what the queue found too large is told with its size.
func TestPublish_SaysHowLargeItWas(t *testing.T) {
	t.Parallel()
	var size atomic.Int64
	p := newPublisher(t, settings(answering(t, func(w http.ResponseWriter, r *http.Request) {
		size.Store(r.ContentLength)
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	})))
	_, err := p.Publish(t.Context(), message("k"))
	want := fmt.Sprintf("request entity too large (the request had %d bytes, INFRAI_MAX_BODY_BYTES is 256000)", size.Load())
	if got := refusal(t, err).Message; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
