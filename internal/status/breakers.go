package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/terminal"
	"github.com/outbox-relay/outbox-relay/relay"
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
// that are open, and which messages it does not have. The state is of the moment
// before the look. What a relay says that does not have the slot of the report is
// nothing, and the report says so.
func (r *Report) Hear(state *relay.State) {
	if why := r.foreign(state); why != "" {
		r.RelayError = why
		return
	}
	r.Breakers, r.Unseen, r.RelayError = openBreakers(&state.Router), r.unseen(state), ""
	r.Summary = r.sentence()
}

// foreign says why a relay does not know what moves here; empty if it does.
func (r *Report) foreign(state *relay.State) string {
	switch {
	case state.Slot != r.slotName:
		return fmt.Sprintf("the relay that answers is one of slot %q", state.Slot)
	case r.elsewhere(state):
		return fmt.Sprintf("the relay that answers works on another server (system %s)", state.System)
	case state.Phase != relay.Active && state.Phase != relay.Careful:
		return fmt.Sprintf("the relay that answers moves no messages now: it is %s", state.Phase)
	}
	return ""
}

// elsewhere reports whether a relay is on another server than the report is of.
func (r *Report) elsewhere(state *relay.State) bool {
	return state.System != "" && r.system != "" && state.System != r.system
}

// Concerns reports whether a relay is one of the slot and the server of the report:
// then its health matters here, whether it moves messages now or not.
func (r *Report) Concerns(state *relay.State) bool {
	return state.Slot == r.slotName && !r.elsewhere(state)
}

func openBreakers(r *relay.RouterState) []Breaker {
	open := []Breaker{}
	add := func(queue string, g *relay.GateState) {
		if g.Closed {
			open = append(open, Breaker{Queue: queue, Class: g.Class, Since: g.Since, NextProbe: g.NextProbe, Text: g.Text})
		}
	}
	add("", &r.Endpoint)
	for i := range r.Queues {
		add(r.Queues[i].Name, &r.Queues[i].Gate)
	}
	return open
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
		names = append(names, fmt.Sprintf("%s (%s)", b.name(), terminal.Line(b.Class)))
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
		text += ": " + terminal.Line(b.Class)
		if b.Text != "" {
			text += ", " + terminal.Line(b.Text)
		}
		if b.NextProbe != nil {
			text += "; next probe in " + age(b.NextProbe.Sub(r.At).Seconds())
		}
		rows = append(rows, [2]string{"sending paused", text})
	}
	return rows
}
