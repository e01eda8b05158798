package tracing_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sethvargo/go-envconfig"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outbox-relay/outbox-relay/internal/tracing"
	"github.com/outbox-relay/outbox-relay/internal/tracing/collector"
)

// The SDK reads the environment of the process, so these tests run one by one. A
// developer's own variables are out of the way.
func TestMain(m *testing.M) {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "OTEL_") {
			_ = os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m)
}

var service = tracing.Service{Name: "outbox-relay", Version: "1.2.3", Instance: "host:1"}

// start starts tracing with some variables, names and values in turn. It returns
// nil if there are no traces.
func start(t *testing.T, variables ...string) (*tracing.Tracing, *observer.ObservedLogs) {
	t.Helper()
	for i := 0; i < len(variables); i += 2 {
		t.Setenv(variables[i], variables[i+1])
	}
	var cfg tracing.Config
	err := envconfig.ProcessWith(t.Context(), &envconfig.Config{
		Target: &cfg, Lookuper: envconfig.PrefixLookuper("OTEL_", envconfig.OsLookuper()),
	})
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.DebugLevel)
	traces := tracing.Start(t.Context(), cfg, service, zap.New(core))
	if traces != nil {
		t.Cleanup(func() { stop(t, traces, 0) })
	}
	return traces, logs
}

// stop waits for the collector as long as the test gives it.
func stop(t *testing.T, traces *tracing.Tracing, wait time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait)
	defer cancel()
	traces.Stop(ctx)
}

// patience is more than any collector here needs.
const patience = time.Minute

// spans makes spans.
func spans(t *testing.T, traces *tracing.Tracing, n int) {
	t.Helper()
	tracer := traces.Provider().Tracer("test")
	for range n {
		_, span := tracer.Start(t.Context(), "publish orders", trace.WithSpanKind(trace.SpanKindClient))
		span.End()
	}
}

func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	return web.URL
}

// TestMain finds the goroutine of an exporter that nobody wanted.
func TestStart_DoesNothingUnlessAsked(t *testing.T) {
	const address = "http://127.0.0.1:1"
	tests := map[string]struct {
		variables []string
		doubt     string
	}{
		"nothing is set":     {},
		"other things are":   {[]string{"OTEL_SERVICE_NAME", "shop", "OTEL_TRACES_SAMPLER", "always_on"}, ""},
		"empty":              {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", ""}, ""},
		"disabled":           {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", address, "OTEL_SDK_DISABLED", "True"}, ""},
		"no exporter":        {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", address, "OTEL_TRACES_EXPORTER", "none"}, ""},
		"another exporter":   {[]string{"OTEL_TRACES_EXPORTER", "console"}, "OTEL_TRACES_EXPORTER"},
		"another protocol":   {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", address, "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL"},
		"no scheme":          {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector:S3cr"}, "OTEL_EXPORTER_OTLP_ENDPOINT"},
		"no address at all":  {[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "://S3cr"}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"},
		"an address of none": {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http:///S3cr"}, "OTEL_EXPORTER_OTLP_ENDPOINT"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			traces, logs := start(t, test.variables...)
			if traces != nil {
				t.Error("there are traces")
			}
			if text := told(logs); !strings.Contains(text, test.doubt) || (text != "") != (test.doubt != "") || strings.Contains(text, "S3cr") {
				t.Errorf("logged %q, want %q in it", text, test.doubt)
			}
		})
	}
}

// told is what was logged.
func told(logs *observer.ObservedLogs) string {
	var text strings.Builder
	for _, entry := range logs.All() {
		text.WriteString(entry.Level.String() + " " + entry.Message)
		for _, field := range entry.Context {
			text.WriteString(" " + field.Key + "=" + field.String)
		}
		text.WriteString("\n")
	}
	return text.String()
}

func TestStop_SendsWhatWaits(t *testing.T) {
	var c collector.Collector
	base := serve(t, &c)
	traces, logs := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT", base, "OTEL_EXPORTER_OTLP_HEADERS", "x-token=S3cr,no header S3cr",
		"OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.version=9")
	const many = 1000 // several batches, of which some wait for their time
	spans(t, traces, many)
	stop(t, traces, patience)
	got := c.Spans()
	if len(got) != many {
		t.Fatalf("%d spans arrived, want %d; %s", len(got), many, told(logs))
	}
	for name, want := range map[string]string{
		"service.name": "outbox-relay", "service.version": "9", "service.instance.id": "host:1",
		"deployment.environment.name": "test", "telemetry.sdk.language": "go",
	} {
		if got := got[0].Resource[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if token := c.Headers()[0].Get("X-Token"); token != "S3cr" {
		t.Errorf("the collector's token is %q", token)
	}
	text := told(logs)
	if !strings.Contains(text, "ignores a setting") || strings.Contains(text, "S3cr") || strings.Contains(text, "lost") {
		t.Errorf("logged %s", text)
	}
	spans(t, traces, 1)
	if len(c.Spans()) != many {
		t.Error("a span was sent after the stop")
	}
}

func TestStart_FollowsTheEnvironment(t *testing.T) {
	var c collector.Collector
	base := serve(t, &c)
	traces, logs := start(t, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", base+collector.Path, "OTEL_SERVICE_NAME", "shop-relay",
		"OTEL_TRACES_SAMPLER", "traceidratio", "OTEL_TRACES_SAMPLER_ARG", "0.1", "OTEL_TRACES_EXPORTER", "otlp")
	spans(t, traces, 2000)
	stop(t, traces, patience)
	// 200 are expected; that it is not within these bounds has a chance of 1e-13.
	if n := len(c.Spans()); n < 100 || n > 300 {
		t.Errorf("%d of 2000 spans were sampled, want about 200; %s", n, told(logs))
	}
	if name := c.Spans()[0].Resource["service.name"]; name != "shop-relay" {
		t.Errorf("the service is %q", name)
	}
}

// A collector that does not answer holds up nobody: neither who ends a span nor
// the stop.
func TestTracing_HangingCollector(t *testing.T) {
	asked := make(chan struct{}, 1)
	release := make(chan struct{})
	base := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	t.Cleanup(func() { close(release) }) // before the server closes
	const limit, many = 100, 5000
	traces, logs := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT", base, "OTEL_BSP_MAX_QUEUE_SIZE", "100",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10", "OTEL_BSP_EXPORT_TIMEOUT", "3600000", "OTEL_EXPORTER_OTLP_TIMEOUT", "3600000")
	spans(t, traces, limit)
	<-asked
	spans(t, traces, many) // would never come to its end if it waited
	if n := logs.FilterMessageSnippet("spans are dropped").Len(); n != 1 {
		t.Errorf("%d lines tell of dropped spans, want 1", n)
	}
	stop(t, traces, 0) // would take an hour
	lost := logs.FilterMessage("spans were lost").All()
	if len(lost) != 1 || lost[0].ContextMap()["spans"] != uint64(limit+many) || traces.Lost() != limit+many {
		t.Errorf("lost are %v, want %d spans", lost, limit+many)
	}
}

// A collector that refuses is told once, without what it says, and so is that it
// takes spans again.
func TestTracing_CollectorThatRefusesForAWhile(t *testing.T) {
	var c collector.Collector
	var requests atomic.Int32
	base := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) > 3 {
			c.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte("the token S3cr is old"))
	}))
	// Each batch is full: none goes out because its time has come.
	traces, logs := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT", base, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10", "OTEL_BSP_SCHEDULE_DELAY", "3600000")
	spans(t, traces, 50)
	stop(t, traces, patience)
	if n := len(c.Spans()); n != 20 {
		t.Errorf("%d spans arrived, want 20", n)
	}
	text := told(logs)
	for _, want := range []string{"does not take spans", "401 Unauthorized", "takes spans again", "spans were lost"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("not once %q in the log:\n%s", want, text)
		}
	}
	if strings.Contains(text, "S3cr") {
		t.Errorf("the log repeats what the collector wrote:\n%s", text)
	}
}

func TestTracing_NobodyListens(t *testing.T) {
	traces, logs := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
	spans(t, traces, 35)
	stop(t, traces, patience)
	if n := logs.FilterMessageSnippet("does not take spans").Len(); n != 1 {
		t.Errorf("%d lines tell of it, want 1: %s", n, told(logs))
	}
	lost := logs.FilterMessage("spans were lost").All()
	if len(lost) != 1 || lost[0].ContextMap()["spans"] != uint64(35) {
		t.Errorf("lost are %v, want 35 spans", lost)
	}
}
