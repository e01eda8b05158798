package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/tracing/collector"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// The built program sends a span for each request, the last ones when it stops.
func TestRun_SendsTraces(t *testing.T) {
	t.Parallel()
	var c collector.Collector
	web := httptest.NewServer(&c)
	t.Cleanup(web.Close)
	r := newRig(t)
	if _, err := r.queue.AddFault(emulator.Fault{Key: "order:1", Status: 503, Count: 2}); err != nil {
		t.Fatal(err)
	}
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	p := relaybin.Run(t, r.with("OTEL_EXPORTER_OTLP_ENDPOINT", web.URL, "OTEL_SERVICE_NAME", "shop-relay",
		"OTEL_BSP_SCHEDULE_DELAY", "3600000"), "run")
	p.AwaitLog(t, "session began")
	sql(t, r.url, fmt.Sprintf("insert into outbox.messages (key, queue, payload, headers) values "+
		`('order:1', 'orders', '{"total": 12.50}', '{"traceparent": "00-%s-%s-01"}')`, trace, span))
	r.awaitAccepted(t, "order:1")
	r.awaitDispatched(t, 1)
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.AwaitExit(t, exitStopped)

	spans := c.Spans()
	if len(spans) != 3 {
		t.Fatalf("%d spans arrived, want 3: two that failed and one", len(spans))
	}
	for i, s := range spans {
		if s.Resource["service.name"] != "shop-relay" || !strings.Contains(s.Resource["service.instance.id"], ":") {
			t.Errorf("span %d is of %v", i, s.Resource)
		}
		if links := s.GetLinks(); len(links) != 1 || fmt.Sprintf("%x-%x", links[0].GetTraceId(), links[0].GetSpanId()) != trace+"-"+span {
			t.Errorf("span %d links to %v", i, links)
		}
		attributes := collector.Texts(s.GetAttributes())
		if failed := i < 2; (attributes["error.type"] == "503") != failed || attributes["messaging.message.id"] != "order:1" {
			t.Errorf("span %d has the attributes %v", i, attributes)
		}
	}
}

// A collector that hangs costs a stop no more than the drain timeout, and the
// messages nothing.
func TestRun_StopsInSpiteOfTheCollector(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	asked := make(chan struct{}, 100)
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-release
	}))
	t.Cleanup(web.Close)
	t.Cleanup(func() { close(release) })
	r := newRig(t)
	p := relaybin.Run(t, r.with("OTEL_EXPORTER_OTLP_ENDPOINT", web.URL, "OTEL_BSP_SCHEDULE_DELAY", "1",
		"OTEL_EXPORTER_OTLP_TIMEOUT", "3600000", "OTEL_BSP_EXPORT_TIMEOUT", "3600000"), "run")
	p.AwaitLog(t, "session began")
	r.insert(t, "one")
	select {
	case <-asked:
	case <-time.After(patience):
		t.Fatal("nobody asked the collector")
	}
	r.insert(t, "two")
	r.awaitAccepted(t, "one", "two")
	r.awaitDispatched(t, 2)
	began := time.Now()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.AwaitExit(t, exitStopped) // it would take an hour
	if took := time.Since(began); took < mostFlush {
		t.Errorf("the stop took %s and did not try to send what was left for %s", took, mostFlush)
	}
	if lost := p.AwaitLog(t, "spans were lost"); lost.Fields["spans"] != 2.0 {
		t.Errorf("the log says %s", lost.Text)
	}
}
