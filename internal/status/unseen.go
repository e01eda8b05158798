package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/terminal"
	"github.com/outbox-relay/outbox-relay/relay"
)

// Unseen are messages without outcome that the relay does not have in memory: the
// stream has not come to them, or never will, and then the sweep finds them. Those
// of the last seconds do not count.
type Unseen struct {
	// Count is how many there are. There may be more if AtLeast says so: what has
	// come to the relay since may be any of them.
	Count   int64 `json:"count"`
	AtLeast bool  `json:"at_least"`
	// OldestSeconds is the age of the oldest one.
	OldestSeconds *float64     `json:"oldest_seconds"`
	Queues        []QueueCount `json:"queues"`
	// MemoryFull says that the relay takes nothing in before something goes out.
	MemoryFull bool `json:"memory_full"`
	// Unwritten says that outcomes cannot be written: until they can, the relay takes
	// nothing in, be it from the stream or from the table.
	Unwritten bool `json:"unwritten"`
	// NextSweepSeconds is the time until the relay looks for them in the table: 0
	// while it does, nil where it never does, because it reads nothing but the table.
	NextSweepSeconds *float64 `json:"next_sweep_seconds"`
}

// unseen compares what has no outcome with what the relay had in memory when the
// look began. It never counts too many: what is in memory may all be of those that
// have waited for longest.
func (r *Report) unseen(state *relay.State) *Unseen {
	u := &Unseen{
		AtLeast: r.WithoutOutcome.AtLeast, Queues: []QueueCount{},
		MemoryFull: state.Router.Messages >= state.Router.MessagesLimit || state.Router.Bytes >= state.Router.BytesLimit,
		Unwritten:  Unwritten(state),
	}
	live := map[string]int64{}
	for i := range state.Router.Queues {
		live[state.Router.Queues[i].Name] = int64(state.Router.Queues[i].Live)
	}
	rest := r.settled
	for _, q := range r.WithoutOutcomeQueues {
		rest -= q.settled
		n := q.settled - live[q.Queue]
		if n <= 0 {
			continue
		}
		u.Count += n
		u.AtLeast = u.AtLeast || live[q.Queue] > 0
		u.Queues = append(u.Queues, QueueCount{Queue: q.Queue, Count: n, OldestSeconds: q.OldestSeconds})
		if q.OldestSeconds != nil && (u.OldestSeconds == nil || *q.OldestSeconds > *u.OldestSeconds) {
			u.OldestSeconds = q.OldestSeconds
		}
	}
	u.AtLeast = u.AtLeast || u.Count > 0 && rest > 0
	u.NextSweepSeconds = untilSweep(state)
	return u
}

// unwrittenFor is how long a write may fail before that is worth a word: a connection
// that breaks is there again within seconds.
const unwrittenFor = 10 * time.Second

// Unwritten reports whether a relay has not been able to write outcomes for a while.
// Nothing new is taken in meanwhile.
func Unwritten(state *relay.State) bool {
	trouble := state.Writer.Trouble
	return trouble != nil && state.At.Sub(trouble.Since) >= unwrittenFor
}

// standsStill is what the texts say then.
const standsStill = "intake stands still because outcomes cannot be written"

// untilSweep is how long it is until the next sweep.
func untilSweep(state *relay.State) *float64 {
	switch {
	case state.Sweep == nil:
		return nil
	case state.Sweep.Next == nil:
		return new(float64)
	}
	left := max(0, state.Sweep.Next.Sub(state.At).Seconds())
	return &left
}

// NextSweep says when the relay looks in the table for what the stream has not
// shown; empty if it never does.
func NextSweep(state *relay.State) string { return nextSweep(untilSweep(state)) }

func nextSweep(seconds *float64) string {
	switch {
	case seconds == nil:
		return ""
	case *seconds == 0:
		return "a sweep looks for them now"
	}
	return "the next sweep in " + age(*seconds)
}

// Of is how many of them a queue has.
func (u *Unseen) Of(queue string) int64 {
	if u != nil {
		for i := range u.Queues {
			if u.Queues[i].Queue == queue {
				return u.Queues[i].Count
			}
		}
	}
	return 0
}

// Text says all of it, with the next sweep as [NextSweep] tells it.
func (u *Unseen) Text(sweep string) string {
	text := u.number() + " messages have no outcome and are"
	if u.Count == 1 {
		text = u.number() + " message has no outcome and is"
	}
	text += " not in the relay's memory" + u.names()
	if u.OldestSeconds != nil {
		text += ", the oldest " + age(*u.OldestSeconds) + " old"
	}
	switch {
	case u.Unwritten:
		text += "; " + standsStill + ", they follow when they can"
	case u.MemoryFull:
		text += "; the memory is full, they follow as it empties"
	case sweep != "":
		text += "; what the stream never shows, the sweep finds: " + sweep
	}
	return text
}

func (u *Unseen) number() string { return Count{Count: u.Count, AtLeast: u.AtLeast}.number() }

// unseenInText is how many queues a text names.
const unseenInText = 3

// names are the queues with their numbers, in brackets.
func (u *Unseen) names() string {
	var names []string
	for i := range u.Queues {
		if i == unseenInText {
			names = append(names, "others")
			break
		}
		names = append(names, fmt.Sprintf("%s %d", terminal.Line(u.Queues[i].Queue), u.Queues[i].Count))
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// aside is what the sentence says of them behind those that wait.
func (u *Unseen) aside() string {
	if u == nil || u.Count == 0 {
		return ""
	}
	text := ", " + u.number() + " of them not in the relay's memory"
	sweep := nextSweep(u.NextSweepSeconds)
	switch {
	case u.Unwritten:
		text += " (" + standsStill + ")"
	case sweep != "" && !u.MemoryFull:
		text += " (" + sweep + ")"
	}
	return text
}

// unseenRows are those of the table.
func (r *Report) unseenRows() [][2]string {
	if r.Unseen == nil || r.Unseen.Count == 0 {
		return nil
	}
	return [][2]string{{"unseen", r.Unseen.Text(nextSweep(r.Unseen.NextSweepSeconds))}}
}
