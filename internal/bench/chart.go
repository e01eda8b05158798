package bench

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// chartPoints is the most points of a line: more would not be seen.
const chartPoints = 60

// Chart writes the report as Markdown with charts that Mermaid draws.
func (r *OutageReport) Chart(out io.Writer) error {
	lines := []struct {
		title, unit string
		of          func(Sample) float64
		join        func(a, b float64) float64 // of samples that become one point
	}{
		{"WAL kept by the slot", "MiB", func(s Sample) float64 { return mebibytes(s.Retained) }, math.Max},
		{"Messages deferred", "thousands", func(s Sample) float64 { return float64(s.Deferred) / 1000 }, math.Max},
		{"Messages accepted each second", "messages/s", func(s Sample) float64 { return s.Rate }, nil},
		{"Resident memory of the relay", "MiB", func(s Sample) float64 { return mebibytes(s.Resident) }, math.Max},
	}
	var b strings.Builder
	for _, p := range r.Phases {
		fmt.Fprintf(&b, "- %.1f to %.1f min: %s\n", p.From/60, p.To/60, p.Name)
	}
	for _, line := range lines {
		values := make([]float64, len(r.Samples))
		for i, s := range r.Samples {
			values[i] = line.of(s)
		}
		b.WriteString("\n" + xychart(line.title, line.unit, r.Samples[len(r.Samples)-1].At/60, squeeze(values, line.join)))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// squeeze makes at most chartPoints of values: neighbours become their mean, or
// what join makes of them.
func squeeze(values []float64, join func(a, b float64) float64) []float64 {
	each := (len(values) + chartPoints - 1) / chartPoints
	var points []float64
	for from := 0; from < len(values); from += each {
		some := values[from:min(from+each, len(values))]
		point := some[0]
		for _, v := range some[1:] {
			if join != nil {
				point = join(point, v)
			} else {
				point += v
			}
		}
		if join == nil {
			point /= float64(len(some))
		}
		points = append(points, point)
	}
	return points
}

// xychart is one line over minutes.
func xychart(title, unit string, minutes float64, points []float64) string {
	var most float64
	texts := make([]string, len(points))
	for i, p := range points {
		most = max(most, p)
		texts[i] = fmt.Sprintf("%.4g", p)
	}
	return fmt.Sprintf("```mermaid\nxychart-beta\n    title %q\n    x-axis \"minutes\" 0 --> %.1f\n    y-axis %q 0 --> %.0f\n    line [%s]\n```\n",
		title, minutes, unit, math.Ceil(most*1.1), strings.Join(texts, ", "))
}
