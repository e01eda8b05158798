package status

import (
	"fmt"
	"strings"
	"time"
)

// Breaker is a stop that a relay has made by itself: after failures in a row it
// sends to a queue, or to all of them, only one request at a time, to find out
// whether that is mended.
type Breaker struct {
	// Queue is empty for the endpoint: nothing is sent to any queue.
	Queue string `json:"queue"`
	// Class is that of the failure, Text the last failure.
	Class string     `json:"class"`
	Since *time.Time `json:"since"`
	// NextProbe is when a request may try again.
	NextProbe *time.Time `json:"next_probe"`
	Text      string     `json:"text"`
}

// Hear adds what the relay itself says, which Postgres does not know: the breakers
// that are open, none if all is well.
func (r *Report) Hear(breakers []Breaker) {
	r.Breakers = append([]Breaker{}, breakers...)
	r.Summary = r.sentence()
}

// breakersInSentence is how many the sentence names.
const breakersInSentence = 3

// paused says where sending is paused.
func (r *Report) paused() string {
	var names []string
	for i := range r.Breakers {
		if i == breakersInSentence {
			names = append(names, "others")
			break
		}
		b := &r.Breakers[i]
		names = append(names, fmt.Sprintf("%s (%s)", b.name(), oneLine(b.Class)))
	}
	return "sending paused to " + strings.Join(names, ", ")
}

func (b *Breaker) name() string {
	if b.Queue == "" {
		return "all queues"
	}
	return b.Queue
}

// breakerRows are those of the table.
func (r *Report) breakerRows() (rows [][2]string) {
	for i := range r.Breakers {
		b := &r.Breakers[i]
		text := b.name()
		if b.Since != nil {
			text += " since " + moment(*b.Since)
		}
		text += ": " + oneLine(b.Class)
		if b.Text != "" {
			text += ", " + oneLine(b.Text)
		}
		if b.NextProbe != nil {
			text += "; next probe in " + age(b.NextProbe.Sub(r.At).Seconds())
		}
		rows = append(rows, [2]string{"sending paused", text})
	}
	return rows
}
