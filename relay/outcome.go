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
	released                    // a dead letter that its lane no longer waits for: its row in the table goes
)

// outcome is what became of a message, on its way into Postgres.
type outcome struct {
	message   *message
	state     state
	receipt   Receipt       // for dispatched
	duplicate bool          // for dispatched: the queue may have had it before
	blocks    bool          // for dead: its lane waits for a person, so it keeps a row in the table
	reason    string        // for dead, deferred, postponed and requeued
	failure   *PublishError // the last one; nil without
	notBefore time.Time     // for deferred and postponed; zero: with its queue or lane
	hold      *hold         // for deferred, requeued and a dead one that blocks: what it waits for
}

func (o *outcome) row() *outbox.Row { return o.message.row }

// marks reports whether the message gets a row in dispatched.
func (o *outcome) marks() bool { return o.state == dispatched }

// leaves reports whether the message's row in the table deferred goes.
func (o *outcome) leaves() bool {
	switch o.state {
	case dispatched, withdrawn:
		return o.message.cached
	case dead:
		return o.message.cached && !o.blocks
	case deferred, postponed, requeued, released:
	}
	return false
}

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
