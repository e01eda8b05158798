package verify

import "strings"

// Kind is a kind of fault.
type Kind string

// The kinds.
const (
	// Unaccounted is a message without outcome that the stream has passed.
	Unaccounted Kind = "unaccounted"
	// TwoOutcomes is a message with outcomes that exclude each other.
	TwoOutcomes Kind = "two_outcomes"
	// NoDeadLetter is a row of deferred that holds its lane for a dead letter which
	// is not there.
	NoDeadLetter Kind = "no_dead_letter"
	// WithdrawnAndThere is a withdrawn message that was not deleted.
	WithdrawnAndThere Kind = "withdrawn_and_there"
	// OlderOutcome is a message whose outcome is that of another one, which had its
	// number before.
	OlderOutcome Kind = "older_outcome"
)

// Kinds are all kinds, in the order in which they are told.
var Kinds = []Kind{Unaccounted, TwoOutcomes, NoDeadLetter, WithdrawnAndThere, OlderOutcome}

// Fault is what is wrong with one message.
type Fault struct {
	MessageID int64 `json:"message_id"`
	Kind      Kind  `json:"kind"`
	// Outcomes are those that it has: dispatched, dead letter, deferred, withdrawn.
	Outcomes []string `json:"outcomes"`
}

// Meaning says what a kind is, and what to do about it.
func (k Kind) Meaning() (what, remedy string) {
	switch k {
	case Unaccounted:
		return "without outcome, and the stream has passed them",
			"the sweep finds what the stream did not show, in minutes; if the next run still names them, restart the relay: its first sweep looks at the whole table"
	case TwoOutcomes:
		return "with outcomes that exclude each other",
			"somebody changed the tables by hand: delete the row that is wrong; one of dispatched stays"
	case NoDeadLetter:
		return "that hold their lane for a dead letter which is not there",
			"delete the row of deferred: the message is found without outcome when the relay starts, and sent"
	case WithdrawnAndThere:
		return "withdrawn, although the message is there",
			"delete the row of withdrawn, and restart the relay, which then sends the message; or delete the message"
	case OlderOutcome:
		return "with an outcome that is older than the message: numbers begin again",
			"`outbox-relay doctor` (D22): the message was not sent, unless the stream showed it"
	}
	return string(k), ""
}

// text is the fault on one line.
func (f *Fault) text() string {
	if len(f.Outcomes) == 0 {
		return string(f.Kind)
	}
	return string(f.Kind) + ": " + strings.Join(f.Outcomes, ", ")
}
