package tracing

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
)

// Service says whose spans they are. OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES win over it.
type Service struct {
	Name, Version string
	// Instance tells this process from others of the service.
	Instance string
}

// Tracing makes spans and sends them in the background.
type Tracing struct {
	provider *sdk.TracerProvider
	exporter *exporter
	cut      context.CancelFunc // what still waits for the collector gives up
	log      *zap.Logger
}

// Start begins to send spans, or returns nil if the settings do not ask for it or
// make no sense; then it says so in the log. The SDK of OpenTelemetry keeps a few
// things for the whole process, so one Tracing at a time is enough.
func Start(ctx context.Context, cfg Config, service Service, log *zap.Logger) *Tracing {
	log = log.Named("tracing")
	on, doubt := cfg.wanted()
	if !on {
		if doubt != "" {
			log.Warn("no traces", zap.String("reason", doubt))
		}
		return nil
	}
	complain(log)
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	client, err := otlptracehttp.New(sending)
	if err != nil {
		cut()
		log.Warn("no traces", zap.String("reason", withoutBody(err)))
		return nil
	}
	export := &exporter{next: client, sending: sending, log: log}
	limit := cfg.queueSize()
	log.Info("traces are sent", zap.Int("queue_size", limit))
	return &Tracing{
		provider: sdk.NewTracerProvider(
			sdk.WithResource(describe(ctx, service)),
			sdk.WithSpanProcessor(&queue{
				SpanProcessor: sdk.NewBatchSpanProcessor(export, sdk.WithMaxQueueSize(limit)),
				exporter:      export, limit: int64(limit),
			}),
		),
		exporter: export, cut: cut, log: log,
	}
}

// describe is the resource that every span belongs to. What the environment says
// comes last, and the last one wins; a part of it that cannot be read is told by
// the SDK and left out.
func describe(ctx context.Context, service Service) *resource.Resource {
	described, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			semconv.ServiceName(service.Name), semconv.ServiceVersion(service.Version),
			semconv.ServiceInstanceID(service.Instance)),
		resource.WithFromEnv(),
	)
	if err != nil {
		otel.Handle(fmt.Errorf("resource: %w", err))
	}
	return described
}

// Provider is where tracers come from.
func (t *Tracing) Provider() trace.TracerProvider { return t.provider }

// Lost is how many spans ended and will reach no collector. It is 0 for nil.
func (t *Tracing) Lost() uint64 {
	if t == nil {
		return 0
	}
	return t.exporter.lost.Load()
}

// Stop sends what waits, until ctx ends. After it nothing is sent and no goroutine
// is left.
func (t *Tracing) Stop(ctx context.Context) {
	defer context.AfterFunc(ctx, t.cut)()
	defer t.cut()
	// Bounded by ctx through cut: the SDK would leave its goroutine behind.
	_ = t.provider.Shutdown(context.WithoutCancel(ctx))
	if n := t.Lost(); n > 0 {
		t.log.Warn("spans were lost", zap.Uint64("spans", n))
	}
}
