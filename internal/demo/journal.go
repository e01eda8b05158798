package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// request is a publish as the queue saw it.
type request struct {
	key     string
	digest  string // of the body
	outcome emulator.Outcome
	status  int // 0 if the answer was lost
	// message is the id that an accepted message got. Ids grow in the order of
	// acceptance.
	message string
}

// journal is the queue's own record of what it was asked, read as it grows. It
// is safe for concurrent use.
type journal struct {
	queue *queueClient
	after uint64 // the last entry that was read

	mu       sync.Mutex
	requests []request
}

// journalInterval is how often the journal is read.
const journalInterval = 200 * time.Millisecond

// follow reads until ctx ends, which is not an error.
func (j *journal) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		more, err := j.readPage(ctx)
		if err == nil && !more {
			err = pause(ctx, journalInterval)
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("read the queue's journal: %w", err)
		}
	}
	return nil
}

// readPage reads the next entries and reports whether there were any.
func (j *journal) readPage(ctx context.Context) (more bool, err error) {
	entries, err := j.queue.journal(ctx, j.after)
	if err != nil || len(entries) == 0 {
		return false, err
	}
	if first := entries[0].Number; first != j.after+1 {
		return false, fmt.Errorf("entries %d to %d are forgotten already", j.after+1, first-1)
	}
	j.after = entries[len(entries)-1].Number
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range entries {
		if e.Route == "queue.publish" {
			j.enter(e)
		}
	}
	return true, nil
}

// enter notes a publish. The caller holds mu.
func (j *journal) enter(e emulator.Entry) {
	r := request{key: e.Key, digest: e.BodySHA256, outcome: e.Outcome, status: e.Status}
	if e.Outcome == emulator.Accepted {
		r.message = e.MessageIDs[0]
	}
	j.requests = append(j.requests, r)
}

// read returns the requests so far.
func (j *journal) read() []request {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clip(j.requests) // it only grows
}
