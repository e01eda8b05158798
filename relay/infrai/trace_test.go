package infrai_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/outbox-relay/outbox-relay/internal/tracing/collector"
	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

const (
	writerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	writerSpan  = "00f067aa0ba902b7"
	writer      = "00-" + writerTrace + "-" + writerSpan + "-01"
)

// traced makes a publisher whose spans are with the collector when Publish
// returns.
func traced(t *testing.T, cfg infrai.Config) (*infrai.Publisher, *collector.Collector) {
	t.Helper()
	c := new(collector.Collector)
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(answering(t, c.ServeHTTP)+collector.Path))
	if err != nil {
		t.Fatal(err)
	}
	p := newPublisher(t, cfg)
	p.Trace(sdk.NewTracerProvider(sdk.WithSyncer(exporter), sdk.WithSampler(sdk.AlwaysSample())))
	return p, c
}

// one is the only span that a collector has.
func one(t *testing.T, c *collector.Collector) *tracepb.Span {
	t.Helper()
	spans := c.Spans()
	if len(spans) != 1 {
		t.Fatalf("%d spans arrived, want 1", len(spans))
	}
	return spans[0].Span
}

// values are attributes as text.
func values(attributes []*commonpb.KeyValue) map[string]string {
	texts := collector.Texts(attributes)
	for _, a := range attributes {
		switch v := a.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_IntValue:
			texts[a.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		case *commonpb.AnyValue_DoubleValue:
			texts[a.GetKey()] = fmt.Sprint(v.DoubleValue)
		}
	}
	return texts
}

// asked is the last request that a queue got.
type asked struct {
	mu     sync.Mutex
	header http.Header
	body   string
}

func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	a.header, a.body = r.Header, string(body)
	a.mu.Unlock()
	_, _ = io.WriteString(w, `{"ok":true,"data":{"message_id":"msg_1"},"error":null,"metadata":{"request_id":"req-1"}}`)
}

func (a *asked) get() (header http.Header, body string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.header, a.body
}

// The span says what was sent where, and links to the span that wrote the message.
// The request carries the span's own context, the event that of the message.
func TestTrace_SpanOfAnAcceptedMessage(t *testing.T) {
	t.Parallel()
	var queue asked
	base := answering(t, queue.ServeHTTP)
	p, c := traced(t, settings(base))
	row := message("order:17")
	row.Headers = `{"traceparent": "` + writer + `", "tracestate": "shop=1,other=2"}`
	row.Envelope = &outbox.Envelope{Name: relay.CloudEvents, Source: "/shop", Type: "order.placed"}
	row.CommittedAt = time.Now().Add(-time.Hour)
	row.CreatedAt = row.CommittedAt.Add(-time.Hour)
	if _, err := p.Publish(t.Context(), row); err != nil {
		t.Fatal(err)
	}

	span := one(t, c)
	if span.GetName() != "publish orders" || span.GetKind() != tracepb.Span_SPAN_KIND_CLIENT || span.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_UNSET {
		t.Errorf("the span is %s, %s, %s", span.GetName(), span.GetKind(), span.GetStatus())
	}
	if len(span.GetParentSpanId()) != 0 || span.GetStartTimeUnixNano() > span.GetEndTimeUnixNano() || span.GetDroppedAttributesCount() != 0 {
		t.Errorf("the span has parent %x, times %d to %d, %d attributes were dropped",
			span.GetParentSpanId(), span.GetStartTimeUnixNano(), span.GetEndTimeUnixNano(), span.GetDroppedAttributesCount())
	}
	attributes := values(span.GetAttributes())
	if delay, err := strconv.ParseFloat(attributes["outbox.commit_to_send_delay"], 64); err != nil || delay < 3600 || delay > 3660 {
		t.Errorf("the delay is %v, want an hour", attributes["outbox.commit_to_send_delay"])
	}
	delete(attributes, "outbox.commit_to_send_delay")
	address, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"messaging.system": "infrai", "messaging.operation.name": "publish", "messaging.operation.type": "send",
		"messaging.destination.name": "orders", "messaging.message.id": "order:17",
		"server.address": address.Hostname(), "server.port": address.Port(),
		"infrai.message_id": "msg_1", "infrai.request_id": "req-1",
	}
	if diff := cmp.Diff(want, attributes); diff != "" {
		t.Errorf("the attributes (-want +got):\n%s", diff)
	}
	if links := linksOf(span); len(links) != 1 || links[0] != writer {
		t.Errorf("the links are %q", links)
	}

	header, body := queue.get()
	if got, want := header.Get("Traceparent"), fmt.Sprintf("00-%x-%x-01", span.GetTraceId(), span.GetSpanId()); got != want {
		t.Errorf("the request carries %s, want %s", got, want)
	}
	if !strings.Contains(body, `"traceparent":"`+writer+`","tracestate":"shop=1,other=2"`) {
		t.Errorf("the event does not carry the context of its message: %s", body)
	}
}

// linksOf writes the links of a span as headers would.
func linksOf(span *tracepb.Span) []string {
	var links []string
	for _, l := range span.GetLinks() {
		links = append(links, fmt.Sprintf("00-%x-%x-%02x", l.GetTraceId(), l.GetSpanId(), l.GetFlags()&0xff))
	}
	return links
}

// What is no trace context is ignored; the message goes out. The spans are looked at
// before they are sent, because the exporter leaves out the state of a link.
func TestTrace_LinksToValidContextsAlone(t *testing.T) {
	t.Parallel()
	var queue asked
	base := answering(t, queue.ServeHTTP)
	tests := []struct {
		name, headers string
		want          []string
	}{
		{"no headers", ``, nil},
		{"other headers", `{"tenant": "a"}`, nil},
		{"state alone", `{"tracestate": "shop=1"}`, nil},
		{"empty", `{"traceparent": ""}`, nil},
		{"no text", `{"traceparent": 1}`, nil},
		{"zero trace", `{"traceparent": "00-` + strings.Repeat("0", 32) + `-` + writerSpan + `-01"}`, nil},
		{"zero span", `{"traceparent": "00-` + writerTrace + `-0000000000000000-01"}`, nil},
		{"capital letters", `{"traceparent": "` + strings.ToUpper(writer) + `"}`, nil},
		{"too long", `{"traceparent": "` + writer + `-00"}`, nil},
		{"too short", `{"traceparent": "` + writer[:54] + `"}`, nil},
		{"version ff", `{"traceparent": "ff` + writer[2:] + `"}`, nil},
		{"broken JSON", `{"traceparent": "` + writer + `"`, nil},
		{"not sampled", `{"traceparent": "` + writer[:53] + `00"}`, []string{writer[:53] + "00 "}},
		{"a later version", `{"traceparent": "01` + writer[2:] + `-more"}`, []string{writer + " "}},
		{"a state that is none", `{"traceparent": "` + writer + `", "tracestate": "no state"}`, []string{writer + " "}},
		{"a state", `{"tracestate": "a=1", "traceparent": "` + writer + `"}`, []string{writer + " a=1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			recorder := tracetest.NewSpanRecorder()
			p := newPublisher(t, settings(base))
			p.Trace(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder), sdk.WithSampler(sdk.AlwaysSample())))
			row := message("k")
			row.Headers = test.headers
			if _, err := p.Publish(t.Context(), row); err != nil {
				t.Fatal(err)
			}
			var links []string
			for _, l := range recorder.Ended()[0].Links() {
				c := l.SpanContext
				links = append(links, fmt.Sprintf("00-%s-%s-%s %s", c.TraceID(), c.SpanID(), c.TraceFlags(), c.TraceState()))
			}
			if diff := cmp.Diff(test.want, links); diff != "" {
				t.Errorf("the links (-want +got):\n%s", diff)
			}
		})
	}
}

// Each attempt is a span in a trace of its own, with the same link.
func TestTrace_EachAttemptIsASpan(t *testing.T) {
	t.Parallel()
	queue, base := newEmulator(t)
	faults := []struct {
		fault                  emulator.Fault
		errorType, description string
		status                 string
	}{
		{emulator.Fault{Status: 503, Code: "UNAVAILABLE"}, "503", "transient: UNAVAILABLE", "503"},
		{emulator.Fault{Status: 429}, "429", "rate_limited", "429"},
		{emulator.Fault{Status: 404, Code: "QUEUE_NOT_FOUND"}, "404", "queue_closed: QUEUE_NOT_FOUND", "404"},
		{emulator.Fault{Status: 422}, "422", "refused", "422"},
		{emulator.Fault{Cut: emulator.CutHalf}, "unknown_outcome", "unknown_outcome", ""},
		{emulator.Fault{Status: 200, Body: emulator.BodyHTML}, "unknown_outcome", "unknown_outcome", "200"},
		{emulator.Fault{Hang: true}, "unknown_outcome", "unknown_outcome", ""},
	}
	for _, f := range faults {
		f.fault.Key, f.fault.Count = "k", 1
		script(t, queue, f.fault)
	}
	p, c := traced(t, settings(base))
	row := message("k")
	row.Headers = `{"traceparent": "` + writer + `"}`
	for i := range faults {
		ctx, cancel := context.WithCancel(t.Context())
		if faults[i].fault.Hang {
			go func() {
				_ = queue.Journal().Wait(ctx, uint64(i))
				cancel() // the queue has the request
			}()
		}
		if _, err := p.Publish(ctx, row); err == nil {
			t.Error("a fault did nothing")
		}
		cancel()
	}
	if _, err := p.Publish(t.Context(), row); err != nil {
		t.Fatal(err)
	}

	spans := c.Spans()
	if len(spans) != len(faults)+1 {
		t.Fatalf("%d spans arrived, want %d", len(spans), len(faults)+1)
	}
	traces := make(map[string]bool)
	for i, span := range spans {
		traces[string(span.GetTraceId())] = true
		if links := linksOf(span.Span); len(links) != 1 || links[0] != writer || len(span.GetParentSpanId()) != 0 {
			t.Errorf("attempt %d has links %q, parent %x", i+1, links, span.GetParentSpanId())
		}
		if i == len(faults) {
			continue
		}
		got, want := values(span.GetAttributes()), faults[i]
		if got["error.type"] != want.errorType || got["http.response.status_code"] != want.status ||
			!strings.HasPrefix(span.GetStatus().GetMessage(), want.description) ||
			span.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR {
			t.Errorf("attempt %d: error %q, status %q, %s; want %+v", i+1,
				got["error.type"], got["http.response.status_code"], span.GetStatus(), want)
		}
	}
	if len(traces) != len(spans) {
		t.Errorf("%d attempts share %d traces", len(spans), len(traces))
	}
}

// A message that cannot be sent has no request, and so no span.
func TestTrace_NoRequestNoSpan(t *testing.T) {
	t.Parallel()
	p, c := traced(t, settings("http://127.0.0.1:1"))
	row := message("k")
	row.Payload = "no object"
	if _, err := p.Publish(t.Context(), row); err == nil {
		t.Error("it was sent")
	}
	if n := len(c.Spans()); n != 0 {
		t.Errorf("%d spans", n)
	}
}

// SEC-05: no span holds anything of a payload, a header or the key of the project,
// although the queue repeats them and its texts are kept elsewhere.
func TestTrace_NeverTellsThePayload(t *testing.T) {
	t.Parallel()
	const marker = "PII-123"
	queue, base := newEmulator(t)
	script(t, queue, emulator.Fault{Body: emulator.BodyEcho, Status: 422, Count: 1})
	script(t, queue, emulator.Fault{Status: 400, Code: marker, Message: marker, Count: 1})
	cfg := settings(base)
	cfg.ErrorText = true
	p, c := traced(t, cfg)
	row := message("k")
	row.Payload = `{"name": "` + marker + `"}`
	row.Headers = `{"traceparent": "` + writer + `", "tenant": "` + marker + `"}`
	for range 3 {
		_, _ = p.Publish(t.Context(), row)
	}
	spans := c.Spans()
	if len(spans) != 3 {
		t.Fatalf("%d spans arrived, want 3", len(spans))
	}
	for _, span := range spans {
		if text := protojson.Format(span.Span); strings.Contains(text, marker) || strings.Contains(text, "test-key") {
			t.Errorf("the span tells a secret: %s", text)
		}
	}
}

// Without traces a request has no context of one, whatever its message has.
func TestPublish_WithoutTraces(t *testing.T) {
	t.Parallel()
	var queue asked
	p := newPublisher(t, settings(answering(t, queue.ServeHTTP)))
	row := message("k")
	row.Headers = `{"traceparent": "` + writer + `", "tracestate": "a=1"}`
	if _, err := p.Publish(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	if header, _ := queue.get(); header.Get("Traceparent") != "" || header.Get("Tracestate") != "" {
		t.Errorf("the request carries %v", header)
	}
}
