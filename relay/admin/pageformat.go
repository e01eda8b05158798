package admin

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/plural"
	"github.com/outbox-relay/outbox-relay/internal/status"
)

// formats are what the templates write values with.
var formats = template.FuncMap{
	"clock":   clock,
	"machine": func(at time.Time) string { return at.UTC().Format(time.RFC3339) },
	"size":    func(n int64) string { return inBytes(float64(n)) },
	"age":     seconds,
	"grouped": grouped,
	"counted": func(c operate.Count) string { return bounded(c.Count, c.AtLeast) },
	"found":   func(c status.Count) string { return bounded(c.Count, c.AtLeast) },
	"marked":  marked,
	"plural":  plural.Agree[int64],
	"int64":   func(n int) int64 { return int64(n) },
	"len64":   func(l []operate.DeadLetter) int64 { return int64(len(l)) },
	"dict":    dict,
	"old":     old,
}

// clock is a moment for people: the day is told only if it is not today.
func clock(at time.Time) string {
	at = at.UTC()
	if now := time.Now().UTC(); now.Sub(at) < 12*time.Hour || now.Format(time.DateOnly) == at.Format(time.DateOnly) {
		return at.Format("15:04:05") + " UTC"
	}
	return at.Format("2006-01-02 15:04") + " UTC"
}

// seconds writes a duration with as many digits as a person needs.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case s < 0.001:
		return strconv.FormatFloat(math.Round(s*1e5)/100, 'f', -1, 64) + " ms"
	case s < 1:
		return strconv.FormatFloat(math.Round(s*1e3), 'f', -1, 64) + " ms"
	case s < 10:
		return strconv.FormatFloat(math.Round(s*10)/10, 'f', -1, 64) + " s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", s)
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

// round is a span for people.
func round(d time.Duration) string { return seconds(d.Seconds()) }

// inBytes writes a size as Postgres does, in powers of 1024.
func inBytes(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	unit := 0
	for ; n >= 1024 && unit < len(units)-1; unit++ {
		n /= 1024
	}
	digits := 1
	if unit == 0 || n >= 100 || n == math.Trunc(n) {
		digits = 0
	}
	return strconv.FormatFloat(n, 'f', digits, 64) + " " + units[unit]
}

// perSecond and count write numbers, large ones with their thousands apart.
func perSecond(n float64) string { return short(n) }
func count(n float64) string     { return short(n) }

func short(n float64) string {
	if n < 10 && n != math.Trunc(n) {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return grouped(int64(math.Round(n)))
}

// grouped puts a narrow space between the thousands.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

func bounded(n int64, more bool) string {
	if more {
		return "at least " + grouped(n)
	}
	return grouped(n)
}

// old is the age of the oldest one of some messages.
func old(s *float64) string {
	if s == nil {
		return ""
	}
	return seconds(max(0, *s))
}

// marked writes what stands between backquotes as code: it is for a terminal.
func marked(text string) template.HTML {
	parts := strings.Split(text, "`")
	if len(parts)%2 == 0 { // one of them has no partner
		return template.HTML(template.HTMLEscapeString(text))
	}
	var b strings.Builder
	for i, part := range parts {
		part = template.HTMLEscapeString(part)
		if i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		b.WriteString(part)
	}
	return template.HTML(b.String())
}

// dict gives a template several values: names and what they stand for, in turn.
func dict(pairs ...any) map[string]any {
	d := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		d[pairs[i].(string)] = pairs[i+1]
	}
	return d
}
