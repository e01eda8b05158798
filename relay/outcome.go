package relay

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// state says what became of a message.
type state uint8

const (
	dispatched state = iota + 1 // the queue accepted it
	dead                        // it is set aside for a person
	deferred                    // it gets a row in the table, to be sent later
	postponed                   // its row in the table changes: an attempt failed
	requeued                    // its row goes to the end of its lane
	withdrawn                   // the application deleted it while it was deferred
)

// outcome is what became of a message, on its way into Postgres.
type outcome struct {
	message   *message
	state     state
	receipt   Receipt       // for dispatched
	duplicate bool          // for dispatched: the queue may have had it before
	reason    string        // for dead, deferred, postponed and requeued
	failure   *PublishError // the last one; nil without
	notBefore time.Time     // for deferred and postponed; zero: with its queue or lane
	hold      *hold         // for deferred and requeued: what it waits for
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
