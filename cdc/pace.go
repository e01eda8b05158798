package cdc

import "time"

// pace decides when the stream lets messages gather before it reads on. A reader
// that is faster than the server gets them one by one, at the price of a system
// call and a change of goroutines each, which takes the processor away from the
// server and from the publishers. So when messages come quickly one after the
// other, the stream pauses a moment whenever it has read all there is. At a few
// thousand messages a second or less it never does.
type pace struct {
	gathering bool
	quick     int // batches in a row that came soon after the one before
	last      time.Time
}

const (
	// gatherTime is how long messages gather. What a server can send in that
	// time fits into the buffer of the connection.
	gatherTime = time.Millisecond
	// gatherAfter quick batches begin it, a batch of less than gatherLeast
	// messages ends it.
	gatherAfter = 8
	gatherLeast = 8
)

// batch notes that a batch of so many messages was handed over.
func (p *pace) batch(messages int, now time.Time) {
	switch {
	case p.gathering:
		p.gathering = messages >= gatherLeast
	case now.Sub(p.last) < gatherTime:
		p.quick++
		p.gathering = p.quick >= gatherAfter
	default:
		p.quick = 0
	}
	if p.gathering {
		p.quick = 0
	}
	p.last = now
}

// gather pauses if messages come quickly. It is called when there is nothing
// left to read.
func (p *pace) gather() {
	if p.gathering {
		<-time.After(gatherTime)
	}
}
