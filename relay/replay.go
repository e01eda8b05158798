package relay

import "context"

// After a start the first messages of the stream may have been handled before:
// a slot goes back to its last confirmed position, and outcomes are written
// before that is confirmed. The replay guard takes out those that have an
// outcome in Postgres, and marks those that the queue has accepted without
// sending them again.

// mayBeKnown reports whether a look-up is worth its while. Only a relay writes
// outcomes, one at a time, so what had none when this epoch began has none that
// is not of this session: in a backlog, and in normal life, nothing is looked
// up.
func (s *session) mayBeKnown(batch []message) bool {
	if len(s.relay.carried) > 0 {
		return true
	}
	for i := range batch {
		if batch[i].row.ID <= s.horizon {
			return true
		}
	}
	return false
}

// guard returns the messages of a batch that still have to go out.
func (s *session) guard(ctx context.Context, batch []message) ([]message, error) {
	ids := make([]int64, len(batch))
	for i := range batch {
		ids[i] = batch[i].row.ID
	}
	var known map[int64]bool
	err := s.relay.retry(ctx, func() (err error) {
		known, err = s.relay.reading.known(ctx, ids)
		return err
	})
	if err != nil {
		return nil, err
	}
	fresh := batch[:0]
	var resolved []uint64
	for i := range batch {
		m := &batch[i]
		switch {
		case known[m.row.ID]:
			delete(s.relay.carried, m.row.ID)
			resolved = append(resolved, m.number)
		case s.markCarried(m):
		default:
			fresh = append(fresh, *m)
		}
	}
	s.relay.source.Resolve(resolved)
	return fresh, nil
}

// markCarried writes the outcome of a message that was accepted in an earlier
// session of this process, if it was.
func (s *session) markCarried(m *message) bool {
	earlier := s.relay.carried[m.row.ID]
	if earlier == nil {
		return false
	}
	delete(s.relay.carried, m.row.ID)
	marked := &message{row: m.row, number: m.number, backlog: m.backlog, attempts: earlier.message.attempts}
	s.router.hold(marked)
	s.writer.put(&outcome{message: marked, state: dispatched, receipt: earlier.receipt})
	return true
}

// feedBacklog takes in the messages that are deferred, in commit order, before
// anything of the stream.
func (s *session) feedBacklog(ctx context.Context) error {
	var after int64
	for {
		var chunk []deferredRow
		err := s.relay.retry(ctx, func() (err error) {
			chunk, err = s.relay.reading.backlog(ctx, after, backlogChunk)
			return err
		})
		if err != nil || len(chunk) == 0 {
			return err
		}
		batch := make([]message, 0, len(chunk))
		for i := range chunk {
			d := &chunk[i]
			after = d.position
			m := message{row: &d.row, backlog: true}
			switch {
			case d.missing:
				s.router.hold(&m)
				s.writer.put(&outcome{message: &m, state: withdrawn})
			case s.markCarried(&m):
			default:
				batch = append(batch, m)
			}
		}
		if err := s.takeIn(ctx, batch); err != nil {
			return err
		}
	}
}

// backlogChunk is the number of deferred messages that are read at once.
const backlogChunk = 1000
