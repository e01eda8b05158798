package relay

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/outbox-relay/outbox-relay/internal/paused"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// Settings are an operator's settings of one queue, from the table queues. The
// zero value is a queue without a row there.
type Settings struct {
	// Paused stops sending to the queue; its messages wait in the table.
	Paused bool
	// Pause is who wants that, and why; it changes nothing.
	Pause paused.Note
	// MaxInFlight overrides Config.MaxInFlightPerQueue; 0 does not.
	MaxInFlight int
	// MaxAttempts overrides Config.MaxAttempts; 0 does not.
	MaxAttempts int
	// RatePerSecond bounds the requests to the queue; 0 does not.
	RatePerSecond float64
	// OrderedByQueue makes one lane of the whole queue, whatever the ordering
	// keys of its messages.
	OrderedByQueue bool
	// HoldOnDeadLetter makes a lane wait for a person when one of its messages
	// becomes a dead letter.
	HoldOnDeadLetter bool
	// Envelope is what messages to come shall be wrapped in; nil is nothing.
	Envelope *outbox.Envelope

	wrappings wrappings // what its messages are wrapped in
}

// equal reports whether the relay does the same by other settings.
func (s *Settings) equal(other Settings) bool {
	return s.Paused == other.Paused && s.MaxInFlight == other.MaxInFlight && s.MaxAttempts == other.MaxAttempts &&
		s.RatePerSecond == other.RatePerSecond && s.OrderedByQueue == other.OrderedByQueue && s.HoldOnDeadLetter == other.HoldOnDeadLetter &&
		sameEnvelope(s.Envelope, other.Envelope) && s.wrappings.equal(other.wrappings)
}

// MarshalLogObject writes what an operator has set, by the columns of the table
// queues: what is left out is as it is without a row.
func (s *Settings) MarshalLogObject(to zapcore.ObjectEncoder) error {
	to.AddBool("paused", s.Paused)
	zap.Inline(&s.Pause).AddTo(to)
	if s.OrderedByQueue {
		to.AddString("ordering", "queue")
	}
	if s.MaxInFlight != 0 {
		to.AddInt("max_in_flight", s.MaxInFlight)
	}
	if s.RatePerSecond != 0 {
		to.AddFloat64("rate_per_second", s.RatePerSecond)
	}
	if s.MaxAttempts != 0 {
		to.AddInt("max_attempts", s.MaxAttempts)
	}
	if s.HoldOnDeadLetter {
		to.AddString("on_dead_letter", "hold")
	}
	if s.Envelope != nil {
		to.AddString("envelope", s.Envelope.Name)
	}
	return nil
}

// settingsPoll is how often the table queues is read.
const settingsPoll = 2 * time.Second

// followSettings applies what operators write into the table queues.
func (s *session) followSettings(ctx context.Context) error {
	ticker := time.NewTicker(settingsPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		s.pulses.settings.Begin(time.Now())
		err := s.updateSettings(ctx)
		s.pulses.settings.End(time.Now())
		if !over(ctx) {
			s.pulses.settings.Note(time.Now(), err)
		}
		switch {
		case err == nil, ctx.Err() != nil:
		case isPermanent(err), errors.Is(err, ErrEpochLost):
			return err
		default:
			s.log.Debug("settings of queues cannot be read", zap.Error(err))
		}
	}
}

// updateSettings applies the settings that are in the table now. Where the
// envelope of a queue changes, the router sends nothing to it from the first
// apply on until the second.
func (s *session) updateSettings(ctx context.Context) error {
	for {
		settings, err := s.relay.loading.settings(ctx, s.relay.cfg.envelope())
		if err != nil {
			return err
		}
		s.router.apply(time.Now(), settings)
		turned, err := s.turnEnvelopes(ctx, settings, nil)
		if err != nil || !turned {
			return err
		}
	}
}

// settings reads the table queues. Events get the source and type of an envelope.
func (s *store) settings(ctx context.Context, event outbox.Envelope) (all map[string]Settings, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, s.sql.settings)
		if err != nil {
			return err
		}
		all = map[string]Settings{}
		var name string
		var one Settings
		columns := append([]any{
			&name, &one.Paused, &one.MaxInFlight, &one.MaxAttempts, &one.RatePerSecond, &one.OrderedByQueue, &one.HoldOnDeadLetter,
		}, one.Pause.Fields()...)
		_, err = pgx.ForEachRow(rows, columns, func() error {
			all[name] = one
			return nil
		})
		if err != nil {
			return err
		}
		return s.envelopes(ctx, conn, event, all)
	})
	return all, err
}

// apply takes the settings of all queues over.
func (r *router) apply(now time.Time, settings map[string]Settings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settings = settings
	for name, q := range r.queues {
		if to := settings[name]; !q.settings.equal(to) {
			r.change(q, to)
		} else {
			q.settings.Pause = to.Pause
		}
	}
	r.holdDue(now)
	signal(r.load)
}

func (r *router) change(q *queue, to Settings) {
	was := q.settings
	q.set(to)
	r.log.Info("settings of a queue changed", zap.String(keyQueue, q.name), zap.Object("settings", &to))
	if to.OrderedByQueue != q.oneLane && !q.reordering {
		q.reordering = true
		if q.hold == nil {
			r.holdQueue(q, "its ordering changes")
		} else {
			r.reholdQueue(q)
		}
	}
	if was.HoldOnDeadLetter && !to.HoldOnDeadLetter {
		r.releaseLanes(q)
	}
	r.list(q)
	r.wakeOne()
}

// set takes the settings over that need nothing else.
func (q *queue) set(to Settings) {
	if to.RatePerSecond != q.settings.RatePerSecond {
		q.pace = newPace(to.RatePerSecond)
	}
	q.settings = to
}

// releaseLanes lets the lanes of a queue look at the table again: dead letters
// do not hold them any more.
func (r *router) releaseLanes(q *queue) {
	for key, l := range r.lanes {
		if key.queue == q.name && l.hold != nil && l.hold.state == held {
			r.parked[l.hold] = true // it drains as soon as its queue is live
		}
	}
}

// reorder gives a queue the lanes of its new ordering, once everything of it is
// in the table, or on its way there.
func (r *router) reorder(q *queue) {
	if !q.reordering || q.inMemory > 0 || r.caches(q) {
		return
	}
	for key, l := range r.lanes {
		if key.queue == q.name {
			r.dissolve(l)
		}
	}
	q.oneLane, q.reordering = q.settings.OrderedByQueue, false
}

// dissolve makes the hold of a lane a part of its queue's.
func (r *router) dissolve(l *lane) {
	if h := l.hold; h != nil {
		r.rehold(h)
		h.into = h.queue.hold
		h.into.pending += h.pending
	}
	delete(r.lanes, l.key)
}

// caches reports whether rows of a queue are in memory.
func (r *router) caches(q *queue) bool {
	for _, m := range r.cache {
		if m.queue == q {
			return true
		}
	}
	return false
}
