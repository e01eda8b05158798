package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbox-relay/outbox-relay/internal/tally"
)

// prefix is in front of every name.
const prefix = "outbox_relay_"

// section is a part of the page about metrics.
type section struct {
	title    string
	families []*family
}

// family is one metric with all its labels.
type family struct {
	name   string
	kind   kind
	labels []string
	help   string // what it is
	advice string // what to do about it; may be empty
	desc   *prometheus.Desc
}

type kind string

const (
	gaugeKind     kind = "gauge"
	counterKind   kind = "counter"
	histogramKind kind = "histogram"
)

func (s *section) add(k kind, name, help, advice string, labels []string) *family {
	f := &family{name: prefix + name, kind: k, labels: labels, help: help, advice: advice}
	f.desc = prometheus.NewDesc(f.name, help, labels, nil)
	s.families = append(s.families, f)
	return f
}

func (s *section) gauge(name, help, advice string, labels ...string) *family {
	return s.add(gaugeKind, name, help, advice, labels)
}

func (s *section) counter(name, help, advice string, labels ...string) *family {
	return s.add(counterKind, name, help, advice, labels)
}

func (s *section) histogram(name, help, advice string, labels ...string) *family {
	return s.add(histogramKind, name, help, advice, labels)
}

// sink takes metrics during a scrape.
type sink chan<- prometheus.Metric

// put exports a value of a gauge or a counter.
func (s sink) put(f *family, value float64, labels ...string) {
	valueType := prometheus.GaugeValue
	if f.kind == counterKind {
		valueType = prometheus.CounterValue
	}
	s <- prometheus.MustNewConstMetric(f.desc, valueType, value, labels...)
}

func (s sink) count(f *family, value uint64, labels ...string) { s.put(f, float64(value), labels...) }

// flag exports 1 for true and 0 for false.
func (s sink) flag(f *family, is bool, labels ...string) {
	value := 0.0
	if is {
		value = 1
	}
	s.put(f, value, labels...)
}

// states exports 1 for the state that is, and 0 for each of the others.
func (s sink) states(f *family, is string, all []string) {
	for _, one := range all {
		s.flag(f, one == is, one)
	}
}

// known exports a value unless it is not known.
func known[T int64 | float64](s sink, f *family, value *T, labels ...string) {
	if value != nil {
		s.put(f, float64(*value), labels...)
	}
}

func (s sink) distribute(f *family, d tally.Distribution, labels ...string) {
	buckets := make(map[float64]uint64, len(d.Bounds))
	for i, bound := range d.Bounds {
		buckets[bound] = d.Buckets[i]
	}
	s <- prometheus.MustNewConstHistogram(f.desc, d.Count, d.Sum, buckets, labels...)
}

// label makes a label of a text that others wrote.
func label(text string) string { return strings.ToValidUTF8(text, "?") }
