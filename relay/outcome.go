package relay

import (
	"strings"
	"unicode/utf8"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// state says what became of a message.
type state uint8

const (
	dispatched state = iota + 1 // the queue accepted it
	dead                        // it is set aside for a person
	withdrawn                   // the application deleted it while it was deferred
)

// outcome is what became of a message, on its way into Postgres.
type outcome struct {
	message *message
	state   state
	receipt Receipt       // for dispatched
	failure *PublishError // for dead
}

func (o *outcome) row() *outbox.Row { return o.message.row }

// storable makes a text of the queue fit for a text column and for a line of a
// log: valid UTF-8, no control characters, not long.
func storable(text string) string {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
	if len(clean) <= maxStoredText {
		return clean
	}
	cut := maxStoredText
	for !utf8.RuneStart(clean[cut]) {
		cut--
	}
	return clean[:cut]
}

// maxStoredText is the length in bytes of a text of the queue that is kept.
const maxStoredText = 500
