package admin

import (
	"context"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
)

// Look is what the database says at one moment.
type Look struct {
	// Report is what `outbox-relay status` says; the rest is for the page alone.
	Report *status.Report

	Queues  []operate.Queue
	Dead    operate.Count
	Letters []operate.DeadLetter
	// Trouble is why the rest could not be read.
	Trouble error
}

// Read reads what is for the page alone.
func (l *Look) Read(ctx context.Context, o *operate.Operator) error {
	l.Trouble = l.read(ctx, o)
	return l.Trouble
}

func (l *Look) read(ctx context.Context, o *operate.Operator) (err error) {
	if l.Queues, err = o.Queues(ctx); err != nil {
		return err
	}
	if l.Dead, err = o.CountDeadLetters(ctx, operate.Filter{}); err != nil {
		return err
	}
	l.Letters, err = o.DeadLetters(ctx, operate.Filter{Limit: fewLetters})
	return err
}

// knownFor is how old a report may be that a verdict speaks of: somebody reads one
// every 15 s, or every 45 s from a server that is slow.
const knownFor = time.Minute

// Reads tells of what somebody else reads from the database for purposes of his
// own, nil if that is too old: verdicts and charts speak of the last look, and a
// verdict asks nobody itself. It is for the time before Run.
func (s *Server) Reads(seen func(now time.Time) *status.Report) { s.seen = seen }

// readyAfter is ready by what the database has just said, or by the newest report if
// it said nothing: who shows both shows one story.
func (s *Server) readyAfter(state *relay.State, said *Database) Verdict {
	if said.Report == nil {
		return s.ready(state)
	}
	return s.readyBy(state, said.Report)
}

// known is the newest report that there is, at most so old; nil without one.
func (s *Server) known(now time.Time, old time.Duration) *status.Report {
	report := s.lookout.latest(now, old)
	if s.seen == nil {
		return report
	}
	if other := s.seen(now); other != nil && now.Sub(other.Looked) <= old && (report == nil || other.Looked.After(report.Looked)) {
		return other
	}
	return report
}
