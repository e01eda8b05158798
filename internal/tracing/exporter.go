package tracing

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"
)

// exporter sends spans, counts those that are lost, and tells the log when that
// begins and when it is over, not each time. One goroutine exports.
type exporter struct {
	next    sdk.SpanExporter
	sending context.Context // its end is the end of every export
	log     *zap.Logger

	waiting  atomic.Int64 // spans that ended and were not given to next yet, or not taken by it
	lost     atomic.Uint64
	overflow sync.Once
	failing  bool // of the goroutine that exports
}

// ExportSpans implements sdk.SpanExporter. It has no error for the SDK, which
// would tell it to everybody each time.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.sending, cancel)()
	err := e.next.ExportSpans(ctx, spans)
	e.waiting.Add(-int64(len(spans)))
	if err != nil {
		e.lost.Add(uint64(len(spans)))
	}
	e.tell(err)
	return nil
}

func (e *exporter) tell(err error) {
	if (err != nil) == e.failing {
		return
	}
	e.failing = err != nil
	if e.failing {
		e.log.Warn("the collector does not take spans, they are lost", zap.String("reason", withoutBody(err)))
		return
	}
	e.log.Info("the collector takes spans again", zap.Uint64("lost", e.lost.Load()))
}

// drop counts a span that has no place in the queue.
func (e *exporter) drop() {
	e.lost.Add(1)
	e.overflow.Do(func() {
		e.log.Warn("the collector is too slow, spans are dropped; OTEL_TRACES_SAMPLER makes fewer of them")
	})
}

// Shutdown implements sdk.SpanExporter.
func (e *exporter) Shutdown(ctx context.Context) error { return e.next.Shutdown(ctx) }

// queue bounds the spans that wait. The SDK's queue has a bound too, but loses
// what is above it without a word; with this one in front it is never full.
type queue struct {
	sdk.SpanProcessor
	exporter *exporter
	limit    int64
}

// OnEnd implements sdk.SpanProcessor. It never blocks.
func (q *queue) OnEnd(span sdk.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	if q.exporter.waiting.Add(1) > q.limit {
		q.exporter.waiting.Add(-1)
		q.exporter.drop()
		return
	}
	q.SpanProcessor.OnEnd(span)
}

// maxReason is enough for an address and what befell it.
const maxReason = 200

// withoutBody is an error of the exporter on one short line, without what the
// collector wrote: that may repeat what it was sent, its token included.
func withoutBody(err error) string {
	text, _, _ := strings.Cut(err.Error(), "body:")
	if strings.Contains(text, "partial success") {
		return "it rejected some of them"
	}
	text, _, _ = strings.Cut(text, "\n")
	return strings.TrimRight(text[:min(len(text), maxReason)], " (:")
}
