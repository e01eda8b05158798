package relay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/outbox"
)

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
	if s.relay.carriesAny() {
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
	var known map[int64]bool
	err := s.relay.retry(ctx, func() (err error) {
		known, err = s.relay.reading.known(ctx, batch)
		if !over(ctx) {
			s.pulses.intake.Note(time.Now(), err)
		}
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
			s.relay.takeCarried(m.row)
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
	earlier := s.relay.takeCarried(m.row)
	if earlier == nil {
		return false
	}
	marked := &message{row: m.row, number: m.number, attempts: earlier.message.attempts}
	s.router.record(&outcome{message: marked, state: dispatched, receipt: earlier.receipt, duplicate: earlier.duplicate})
	return true
}

// keep remembers what a session could not write. The outcome of an earlier
// session stays until its message is read again.
func (r *Relay) keep(left []*outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range left {
		if o.state == dispatched {
			r.carried[o.row().ID] = o
		}
	}
}

// forgetMarked drops what is marked after all: only the answer to the commit was
// lost. A message of the table would not be read again, and as long as anything is
// remembered, everything that comes is looked up. The caller has taken over: no
// commit of an earlier epoch is under way.
func (r *Relay) forgetMarked(ctx context.Context) error {
	r.mu.Lock()
	ids := slices.Collect(maps.Keys(r.carried))
	r.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	marked, err := r.reading.marked(ctx, ids)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range marked {
		delete(r.carried, id)
	}
	return nil
}

// takeCarried returns what keep remembered of a message, once; nil without. A
// database that was put back to an earlier state gives numbers out again: then
// what is remembered is of another message, which the key tells.
func (r *Relay) takeCarried(row *outbox.Row) *outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.carried[row.ID]
	delete(r.carried, row.ID)
	if o != nil && o.row().Key != row.Key {
		return nil
	}
	return o
}

func (r *Relay) carriesAny() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.carried) > 0
}

// marked returns which of the messages have a row in dispatched.
func (s *store) marked(ctx context.Context, ids []int64) (marked []int64, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, s.in(sqlMarked), ids)
		if err != nil {
			return err
		}
		marked, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look up marks: %w", err)
	}
	return marked, nil
}

const sqlMarked = `select message_id from outbox.dispatched where message_id = any ($1::bigint[])`
