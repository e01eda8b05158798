// Package collector is a collector of OpenTelemetry for tests: it takes spans by
// OTLP over HTTP, as protobuf, and keeps them.
package collector

import (
	"io"
	"net/http"
	"slices"
	"sync"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Path is where a collector takes spans.
const Path = "/v1/traces"

// Collector is an http.Handler. The zero value is ready for use.
type Collector struct {
	mu      sync.Mutex
	spans   []Span
	headers []http.Header
}

// Span is a span that arrived.
type Span struct {
	*tracepb.Span
	// Resource says whose span it is.
	Resource map[string]string
}

// ServeHTTP takes spans. What is none is answered as a collector does, and not
// kept.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collectorpb.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	switch {
	case r.Method != http.MethodPost || r.URL.Path != Path:
		w.WriteHeader(http.StatusNotFound)
		return
	case err != nil || r.Header.Get("Content-Type") != "application/x-protobuf":
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.keep(&request, r.Header)
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(http.StatusOK)
}

func (c *Collector) keep(request *collectorpb.ExportTraceServiceRequest, header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = append(c.headers, header)
	for _, r := range request.GetResourceSpans() {
		resource := Texts(r.GetResource().GetAttributes())
		for _, scope := range r.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans = append(c.spans, Span{span, resource})
			}
		}
	}
}

// Spans are those that arrived so far, in the order of their arrival.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Headers are those of the requests that brought them.
func (c *Collector) Headers() []http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.headers)
}

// Texts are the attributes whose values are texts.
func Texts(attributes []*commonpb.KeyValue) map[string]string {
	texts := make(map[string]string)
	for _, a := range attributes {
		if text, ok := a.GetValue().GetValue().(*commonpb.AnyValue_StringValue); ok {
			texts[a.GetKey()] = text.StringValue
		}
	}
	return texts
}
