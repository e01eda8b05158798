package status

import (
	"fmt"
	"math"
)

// Pace is how the deferred messages became more or fewer in the last half minute.
type Pace struct {
	// PerSecond is by how many, negative if they became fewer; nil if they are too
	// many to be counted.
	PerSecond *float64 `json:"per_second"`
	// SecondsLeft is when none is left if that goes on; nil if it does not lead there.
	SecondsLeft *float64 `json:"seconds_left"`
}

// PaceOf compares the deferred messages with those of a look so many seconds
// before. Those that are too many to be counted are told by the age of the oldest
// one: they go out in order, mostly. It is nil if nothing can be told.
func PaceOf(now, before Count, seconds float64) *Pace {
	switch {
	case seconds <= 0 || now.Count == 0:
		return nil
	case !now.AtLeast && !before.AtLeast:
		change := float64(now.Count-before.Count) / seconds
		return &Pace{PerSecond: &change, SecondsLeft: left(float64(now.Count), change)}
	case now.OldestSeconds == nil || before.OldestSeconds == nil:
		return nil
	}
	return &Pace{SecondsLeft: left(*now.OldestSeconds, (*now.OldestSeconds-*before.OldestSeconds)/seconds)}
}

// endless is longer than anybody waits for a backlog: what is left then is no answer.
const endless = 7 * 24 * 3600.0

func left(what, change float64) *float64 {
	if change >= 0 || what/-change > endless {
		return nil
	}
	seconds := what / -change
	return &seconds
}

// Text is the pace for people; empty if there is nothing to tell.
func (p *Pace) Text() string {
	if p == nil {
		return ""
	}
	text := ""
	if p.PerSecond != nil {
		switch n := math.Abs(*p.PerSecond); {
		case n < 0.1: // which is one, here and there
		case *p.PerSecond > 0:
			text = digits(n) + " more a second"
		default:
			text = digits(n) + " fewer a second"
		}
	}
	if p.SecondsLeft == nil {
		return text
	}
	if text != "" {
		text += ", "
	}
	return text + "none left in about " + age(*p.SecondsLeft)
}

func digits(n float64) string {
	if n < 10 {
		return fmt.Sprintf("%.2g", n)
	}
	return fmt.Sprintf("%.0f", n)
}
