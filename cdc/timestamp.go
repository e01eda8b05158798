package cdc

import (
	"bytes"
	"time"
)

// era says whether a timestamp of Postgres fits into the years 1 to 9999, which
// is what Go's time can also print and read again.
type era int

const (
	inRange era = iota
	before      // -infinity and years BC
	after       // infinity and years past 9999
	garbled     // not a timestamp
)

// latest stands for every moment after the year 9999 where a message must wait
// for it: as far away as a time can be that can still be written down.
var latest = time.Date(9999, time.December, 31, 23, 59, 59, 999999000, time.UTC)

// parseTimestamp reads the text of a timestamptz or timestamp in the ISO style,
// which the session's settings guarantee: 2026-01-31 12:00:00.25+00. Without an
// offset it is UTC. The time is zero unless it is in range.
func parseTimestamp(text []byte) (time.Time, era) {
	switch string(text) {
	case "infinity":
		return time.Time{}, after
	case "-infinity":
		return time.Time{}, before
	}
	text, bc := bytes.CutSuffix(text, []byte(" BC"))

	p := timestampParser{rest: text}
	year := p.number(4, 6)
	p.literal('-')
	month := p.number(2, 2)
	p.literal('-')
	day := p.number(2, 2)
	p.literal(' ')
	hour := p.number(2, 2)
	p.literal(':')
	minute := p.number(2, 2)
	p.literal(':')
	second := p.number(2, 2)
	nanosecond := p.fraction()
	offset := p.offset()

	switch {
	case p.bad || len(p.rest) > 0:
		return time.Time{}, garbled
	case month < 1 || month > 12 || day < 1 || day > 31 || hour > 24 || minute > 59 || second > 60:
		return time.Time{}, garbled
	case bc || year < 1:
		return time.Time{}, before
	case year > 9999:
		return time.Time{}, after
	}
	t := time.Date(year, time.Month(month), day, hour, minute, second, nanosecond, time.UTC)
	return t.Add(-offset), inRange
}

// timestampParser takes a timestamp apart; bad once something does not fit.
type timestampParser struct {
	rest []byte
	bad  bool
}

// number takes between least and most digits.
func (p *timestampParser) number(least, most int) int {
	n, digits := 0, 0
	for digits < most && digits < len(p.rest) && isDigit(p.rest[digits]) {
		n = 10*n + int(p.rest[digits]-'0')
		digits++
	}
	p.rest = p.rest[digits:]
	p.bad = p.bad || digits < least
	return n
}

func (p *timestampParser) literal(b byte) { p.bad = !p.optional(b) || p.bad }

func (p *timestampParser) optional(b byte) bool {
	if len(p.rest) == 0 || p.rest[0] != b {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// fraction takes up to six digits behind a point, as nanoseconds.
func (p *timestampParser) fraction() int {
	if !p.optional('.') {
		return 0
	}
	length := len(p.rest)
	n := p.number(1, 6)
	for digits := length - len(p.rest); digits < 9; digits++ {
		n *= 10
	}
	return n
}

// offset takes the distance to UTC, such as +00, -03:30 or +01:23:45.
func (p *timestampParser) offset() time.Duration {
	sign := time.Second
	switch {
	case p.optional('+'):
	case p.optional('-'):
		sign = -sign
	default:
		return 0
	}
	seconds := 3600 * p.number(2, 2)
	if p.optional(':') {
		seconds += 60 * p.number(2, 2)
	}
	if p.optional(':') {
		seconds += p.number(2, 2)
	}
	return time.Duration(seconds) * sign
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// moment reads the binary form of a timestamptz: microseconds since the year
// 2000. The beginning of that year stands for no time.
func moment(microseconds uint64) time.Time {
	if microseconds == 0 {
		return time.Time{}
	}
	return time.UnixMicro(year2000 + int64(microseconds)).UTC()
}

// year2000 is the beginning of Postgres's time in Unix's, in microseconds.
const year2000 = 946_684_800_000_000
