package emulator_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// nowhere is a ResponseWriter that costs nothing.
type nowhere struct {
	header http.Header
	status int
}

func (w *nowhere) Header() http.Header { return w.header }

func (w *nowhere) Write(b []byte) (int, error) { return len(b), nil }

func (w *nowhere) WriteHeader(status int) { w.status = status }

// BenchmarkPublish is what the emulator itself costs, without a network. The
// benchmarks of the relay run against "discard".
func BenchmarkPublish(b *testing.B) {
	const payload = `{"currency":"EUR","customer":{"email":"customer@example.com","id":42,"name":"Example"},"id":"evt_01J8ZQ5T6R7S8T9V0W1X2Y3Z4A",` +
		`"lines":[{"price":12.50,"qty":2,"sku":"A-100"},{"price":99.99,"qty":1,"sku":"B-200"}],` +
		`"note":"a somewhat longer text, so that all is about 400 bytes","occurred_at":"2025-01-02T03:04:05.678901Z","total":124.99,"type":"order.placed"}`
	for name, cfg := range map[string]emulator.Config{
		"full":    {},
		"keys":    {Settings: emulator.Settings{Journal: "keys"}},
		"discard": {Discard: true, Settings: emulator.Settings{Journal: "off", RequestIDHeader: "off"}},
	} {
		b.Run(name, func(b *testing.B) {
			cfg.Queues = []string{"orders"}
			s := emulator.New(cfg)
			defer s.Close()
			body := bytes.NewReader(nil)
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/queue/publish", io.NopCloser(body))
			if err != nil {
				b.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer key")
			w := &nowhere{header: http.Header{}}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				key := "shop:" + strconv.Itoa(n)
				req.Header["Idempotency-Key"] = []string{key}
				body.Reset(fmt.Appendf(nil, `{"idempotency_key":"%s","payload":%s,"queue":"orders"}`+"\n", key, payload))
				clear(w.header)
				s.ServeHTTP(w, req)
				if w.status != http.StatusOK {
					b.Fatalf("status %d", w.status)
				}
			}
		})
	}
}
