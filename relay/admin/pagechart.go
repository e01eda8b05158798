package admin

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Charts are drawn in a box of this size, which the browser stretches; each has at
// most so many points, so that an hour is a small text.
const (
	chartWidth  = 600.0
	chartHeight = 120.0
	points      = 180
	// leastSpan is the time that a chart shows at least: a relay that has just
	// started has a history too.
	leastSpan = 5 * time.Minute
)

// chart is a picture of some values over the last hour.
type chart struct {
	ID, Title string
	// About says what is shown, to those who do not see it, too.
	About string
	// Scale are the values at the top, in the middle and at the bottom.
	Scale []string
	// Span is how long ago the left side was.
	Span   string
	Lines  []line
	Shades []shade
	Width  float64
	Height float64
}

// line is one kind of values in a chart.
type line struct {
	Name string
	// Now is the last value, for people.
	Now string
	// Path are the commands that draw it, Area the same with what is below.
	Path, Area string
}

// shade is a time in which the relay was not ready.
type shade struct{ X, Width float64 }

// curve is what a line is drawn of.
type curve struct {
	name  string
	value func(*sample) float64
}

// axis places values between 0, at the bottom, and 1.
type axis struct {
	top    float64
	place  func(value, top float64) float64
	format func(float64) string
	scale  []float64 // the values that are written beside it
}

// charts draws everything that the page shows of the last hour.
func charts(all []sample, now time.Time) []chart {
	span := leastSpan
	if len(all) > 0 {
		span = min(time.Hour, max(leastSpan, now.Sub(all[0].at)))
	}
	all = thin(all, span)
	p := plot{all: all, from: now.Add(-span), span: span}
	return []chart{
		p.chart("rate", "Messages per second", "read from the stream, and dispatched", linear(perSecond, 1),
			curve{"dispatched", func(s *sample) float64 { return s.dispatched }},
			curve{"read", func(s *sample) float64 { return s.received }}),
		p.chart("latency", "Commit to acceptance", "how long a message took until the queue had accepted it", logarithmic,
			curve{"median", func(s *sample) float64 { return s.median }},
			curve{"slowest 1 %", func(s *sample) float64 { return s.slow }}),
		p.chart("backlog", "Backlog", "messages that have no outcome yet, and deferred ones", linear(count, 10),
			curve{"deferred", func(s *sample) float64 { return s.deferred }},
			curve{"waiting", func(s *sample) float64 { return s.waiting }}),
		p.chart("wal", "Retained WAL", "what the server keeps for the slot", linear(inBytes, 1<<20),
			curve{"retained", func(s *sample) float64 { return s.retained }}),
	}
}

// thin puts neighbours together where there are more samples than points: of a
// group the last moment counts, with the largest values. A group is a stretch of
// the clock, so that a curve keeps its form while it moves on.
func thin(all []sample, span time.Duration) []sample {
	stretch := time.Duration((int(span/sampleEvery)+points-1)/points) * sampleEvery
	if stretch <= sampleEvery {
		return all
	}
	thinned := make([]sample, 0, points+2)
	for i, s := range all {
		if i == 0 || s.at.Truncate(stretch) != all[i-1].at.Truncate(stretch) {
			thinned = append(thinned, s)
			continue
		}
		thinned[len(thinned)-1].join(&s)
	}
	return thinned
}

// join takes a later sample into one.
func (s *sample) join(later *sample) {
	*s = sample{
		at: later.at, failing: s.failing || later.failing,
		received: larger(s.received, later.received), dispatched: larger(s.dispatched, later.dispatched),
		median: larger(s.median, later.median), slow: larger(s.slow, later.slow),
		waiting: larger(s.waiting, later.waiting), deferred: larger(s.deferred, later.deferred),
		retained: larger(s.retained, later.retained),
	}
}

// larger is the larger one of two values that may be unknown.
func larger(a, b float64) float64 {
	if math.IsNaN(a) || b > a {
		return b
	}
	return a
}

// plot draws samples of a span of time.
type plot struct {
	all  []sample
	from time.Time
	span time.Duration
}

func (p *plot) chart(id, title, about string, makeAxis func(most float64) axis, curves ...curve) chart {
	most := 0.0
	for i := range p.all {
		for _, c := range curves {
			most = larger(most, c.value(&p.all[i]))
		}
	}
	a := makeAxis(most)
	drawn := chart{ID: id, Title: title, About: about, Span: round(p.span), Shades: p.shades(), Width: chartWidth, Height: chartHeight}
	for _, value := range a.scale {
		drawn.Scale = append(drawn.Scale, a.format(value))
	}
	for _, c := range curves {
		drawn.Lines = append(drawn.Lines, p.line(c, &a))
	}
	return drawn
}

// line draws one curve, with a gap where nothing is known.
func (p *plot) line(c curve, a *axis) line {
	var path, area strings.Builder
	drawn := line{Name: c.name, Now: "none"}
	began := math.NaN() // where the part begins that is being drawn
	end := func(x float64) {
		if x == began {
			path.WriteString("h0") // a point alone: its round ends make a dot
		}
		if !math.IsNaN(began) {
			fmt.Fprintf(&area, "L%.1f %.1fL%.1f %.1fZ", x, chartHeight, began, chartHeight)
		}
		began = math.NaN()
	}
	x := 0.0
	for i := range p.all {
		value := c.value(&p.all[i])
		if math.IsNaN(value) {
			end(x)
			continue
		}
		x = p.x(p.all[i].at)
		command := "L"
		if math.IsNaN(began) {
			command, began = "M", x
		}
		step := fmt.Sprintf("%s%.1f %.1f", command, x, chartHeight*(1-min(1, a.place(value, a.top))))
		path.WriteString(step)
		area.WriteString(step)
	}
	end(x)
	if n := len(p.all); n > 0 {
		if value := c.value(&p.all[n-1]); !math.IsNaN(value) {
			drawn.Now = a.format(value)
		}
	}
	drawn.Path, drawn.Area = path.String(), area.String()
	return drawn
}

// shades are the times in which the relay was not ready.
func (p *plot) shades() []shade {
	var all []shade
	failing := false
	for i := range p.all {
		s := &p.all[i]
		x := p.x(s.at)
		if failing {
			last := &all[len(all)-1]
			last.Width = x - last.X
		} else if s.failing {
			all = append(all, shade{X: x, Width: 1})
		}
		failing = s.failing
	}
	return all
}

func (p *plot) x(at time.Time) float64 {
	return chartWidth * max(0, min(1, at.Sub(p.from).Seconds()/p.span.Seconds()))
}

// linear is an axis from 0 to a round number, at least this one.
func linear(format func(float64) string, least float64) func(float64) axis {
	return func(most float64) axis {
		top := least
		for step := 0; top < most; step++ {
			top *= []float64{2, 2.5, 2}[step%3]
		}
		return axis{
			top: top, place: func(value, top float64) float64 { return value / top }, format: format,
			scale: []float64{top, top / 2, 0},
		}
	}
}

// shortest is where the axis of durations begins, in seconds.
const shortest = 0.0001

// logarithmic is an axis of durations: a millisecond and the hour of an outage are
// both to be seen.
func logarithmic(most float64) axis {
	top := 1.0
	for top < most {
		top *= 100
	}
	return axis{
		top: top, format: seconds, scale: []float64{top, math.Sqrt(top * shortest), shortest},
		place: func(value, top float64) float64 {
			return max(0, math.Log(value/shortest)/math.Log(top/shortest))
		},
	}
}
