package infrai

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay"
)

// The attributes that OpenTelemetry's conventions have no name for.
const (
	keyDelay     = attribute.Key("outbox.commit_to_send_delay") // seconds
	keyMessageID = attribute.Key("infrai.message_id")
	keyRequestID = attribute.Key("infrai.request_id")
)

// Trace makes a span for each request from now on. It must not be called while
// messages are published. A publisher without it makes none.
func (p *Publisher) Trace(provider trace.TracerProvider) {
	p.spans = &spans{
		tracer: provider.Tracer("github.com/outbox-relay/outbox-relay/relay/infrai",
			trace.WithSchemaURL(semconv.SchemaURL)),
		common: []attribute.KeyValue{
			semconv.MessagingSystemKey.String("infrai"),
			semconv.MessagingOperationName("publish"), semconv.MessagingOperationTypeSend,
			semconv.ServerAddress(p.url.Hostname()), semconv.ServerPort(portOf(p.url)),
		},
	}
}

func portOf(u *url.URL) int {
	if port, err := strconv.Atoi(u.Port()); err == nil {
		return port
	}
	if u.Scheme == "http" {
		return 80
	}
	return 443
}

// spans makes the spans of a publisher; nil makes none.
type spans struct {
	tracer trace.Tracer
	common []attribute.KeyValue // of all spans
}

// begin starts the span of one request. It is the root of a trace: its message may
// have been committed hours ago, in a trace that is long complete, so the span
// links to the one that wrote the message and is no child of it. The samplers look
// at no attribute and no link, so a span that is not sampled costs neither.
func (s *spans) begin(ctx context.Context, row *outbox.Row, now time.Time) (context.Context, trace.Span) {
	ctx, span := s.tracer.Start(ctx, "publish "+row.Queue,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(now))
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(s.common...)
	span.SetAttributes(semconv.MessagingDestinationName(row.Queue), semconv.MessagingMessageID(row.Key))
	if since := committed(row); !since.IsZero() {
		// Two clocks are compared: less than nothing is nothing.
		span.SetAttributes(keyDelay.Float64(max(0, now.Sub(since).Seconds())))
	}
	if writer := writerOf(row.Headers); writer.IsValid() {
		span.AddLink(trace.Link{SpanContext: writer})
	}
	return ctx, span
}

// committed is when the message was. A row that was read from the table does not
// say that, only when it was written.
func committed(row *outbox.Row) time.Time {
	if row.CommittedAt.IsZero() {
		return row.CreatedAt
	}
	return row.CommittedAt
}

// writerOf is the span that wrote the message, as its headers have it; not valid
// without one.
func writerOf(headers string) trace.SpanContext {
	var a attributes
	if headers == "" || a.read(headers) != nil || a.traceParent == "" {
		return trace.SpanContext{}
	}
	// The form was checked: version, trace, span and flags are where they should be.
	var c trace.SpanContextConfig
	var flags [1]byte
	_, _ = hex.Decode(c.TraceID[:], []byte(a.traceParent[3:35]))
	_, _ = hex.Decode(c.SpanID[:], []byte(a.traceParent[36:52]))
	_, _ = hex.Decode(flags[:], []byte(a.traceParent[53:55]))
	c.TraceFlags, c.Remote = trace.TraceFlags(flags[0]), true
	c.TraceState, _ = trace.ParseTraceState(a.traceState) // one that is none is empty
	return trace.NewSpanContext(c)
}

// carry puts the context of the span into the header of its request.
func (s *spans) carry(ctx context.Context, header http.Header) {
	if s != nil {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
	}
}

// end ends the span with what became of the request. The queue's own text is
// left out, also with ErrorText.
func end(span trace.Span, receipt relay.Receipt, err error) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	if receipt.QueueMessageID != "" {
		span.SetAttributes(keyMessageID.String(receipt.QueueMessageID))
	}
	requestID := receipt.RequestID
	if failure, ok := errors.AsType[*relay.PublishError](err); ok {
		requestID = failure.RequestID
		span.SetAttributes(semconv.ErrorTypeKey.String(errorType(failure)))
		span.SetStatus(codes.Error, description(failure))
		if failure.Status != 0 {
			span.SetAttributes(semconv.HTTPResponseStatusCode(failure.Status))
		}
	}
	if requestID != "" {
		span.SetAttributes(keyRequestID.String(requestID))
	}
}

// errorType is the status of an answer that says what was wrong, else the class.
func errorType(failure *relay.PublishError) string {
	if failure.Status >= 300 {
		return strconv.Itoa(failure.Status)
	}
	return failure.Class.String()
}

func description(failure *relay.PublishError) string {
	if failure.Code != "" {
		return failure.Class.String() + ": " + failure.Code
	}
	return failure.Class.String()
}
