package infrai_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// order is a usual message: about 400 bytes, as Postgres prints jsonb.
const order = `{"id": "evt_01J8ZQ5T6R7S8T9V0W1X2Y3Z4A", "note": "a somewhat longer text, so that all is about 400 bytes", ` +
	`"type": "order.placed", "lines": [{"qty": 2, "sku": "A-100", "price": 12.50}, {"qty": 1, "sku": "B-200", "price": 99.99}], ` +
	`"total": 124.99, "customer": {"id": 42, "name": "Example", "email": "customer@example.com"}, ` +
	`"currency": "EUR", "occurred_at": "2025-01-02T03:04:05.678901Z"}`

var usual = outbox.Row{
	Key: "shop:01J8ZQ5T6R7S8T9V0W1X2Y3Z4A", Queue: "orders", Payload: order,
	Priority: pgtype.Int4{Int32: 5, Valid: true},
}

func BenchmarkAppendBody(b *testing.B) {
	b.ReportAllocs()
	var body []byte
	for b.Loop() {
		var err error
		if body, err = infrai.AppendBody(body[:0], &usual); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(body)))
}

// trivial starts a server that answers as the queue does and does nothing else.
func trivial(b *testing.B) string {
	b.Helper()
	answer := []byte(`{"ok":true,"data":{"message_id":"msg_00000000deadbeef"},"error":null,"metadata":{"cost_usd":0,` +
		`"latency_ms":0.05,"vendor":"emulator","cache_hit":false,"request_id":"01951234-5678-7abc-8def-0123456789ab"}}`)
	return listening(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header()["Content-Type"] = []string{"application/json"}
		_, _ = w.Write(answer)
	}))
}

func listening(b *testing.B, handler http.Handler) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: handler}
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(func() { _ = server.Close() })
	return "http://" + listener.Addr().String()
}

// cpuTime reports what each operation cost of all CPUs, client and server
// together. Unlike the time on the clock it holds on a busy machine.
func cpuTime(b *testing.B) (report func()) {
	b.Helper()
	used := func() time.Duration {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}

// flights is how many requests the benchmarks keep on their way for each CPU.
const flights = 32

// BenchmarkPublish stands next to BenchmarkBareClient: the difference is what
// this package costs.
func BenchmarkPublish(b *testing.B) { benchmarkPublish(b, trivial(b)) }

// BenchmarkPublishToEmulator is the same against the emulator, as the benchmarks
// of the relay use it.
func BenchmarkPublishToEmulator(b *testing.B) {
	queue := emulator.New(emulator.Config{
		Queues: []string{"orders"}, Discard: true, Settings: emulator.Settings{Journal: "off", RequestIDHeader: "off"},
	})
	defer queue.Close()
	benchmarkPublish(b, listening(b, queue))
}

// BenchmarkPublishTraced is BenchmarkPublish with a span for each request, that
// nobody sends.
func BenchmarkPublishTraced(b *testing.B) {
	provider := sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample()), sdk.WithSyncer(tracetest.NewNoopExporter()))
	benchmarkPublish(b, trivial(b), func(p *infrai.Publisher) { p.Trace(provider) })
}

// BenchmarkPublishUnsampled is the same for the messages that a sampler leaves out.
func BenchmarkPublishUnsampled(b *testing.B) {
	provider := sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()), sdk.WithSyncer(tracetest.NewNoopExporter()))
	benchmarkPublish(b, trivial(b), func(p *infrai.Publisher) { p.Trace(provider) })
}

func benchmarkPublish(b *testing.B, base string, options ...func(*infrai.Publisher)) {
	b.Helper()
	p, err := infrai.New(settings(base), zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	for _, option := range options {
		option(p)
	}
	b.ReportAllocs()
	b.SetParallelism(flights)
	defer cpuTime(b)()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := p.Publish(b.Context(), &usual); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkBareClient sends the same request through http.Client and reads the
// answer without looking at it.
func BenchmarkBareClient(b *testing.B) {
	address := trivial(b) + "/v1/queue/publish"
	body, err := infrai.AppendBody(nil, &usual)
	if err != nil {
		b.Fatal(err)
	}
	client := &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{MaxIdleConns: 256, MaxIdleConnsPerHost: 256, DisableCompression: true},
	}
	defer client.CloseIdleConnections()
	b.ReportAllocs()
	b.SetParallelism(flights)
	defer cpuTime(b)()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, address, bytes.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer test-key")
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Idempotency-Key", usual.Key)
			resp, err := client.Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}
