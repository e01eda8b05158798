package cdc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
	"github.com/outbox-relay/outbox-relay/outbox"
)

const (
	// batchRows and batchBytes bound what is handed over at once: enough that
	// the handing over costs nothing, little enough to stay in the caches.
	batchRows  = 256
	batchBytes = 1 << 20
	// readBurst is how many messages are read before the clock is looked at
	// again. They need not fill a batch: rows of other tables come in between.
	readBurst = 4 * batchRows
	// pollInterval is how often resolved numbers are collected while nothing
	// arrives.
	pollInterval = 250 * time.Millisecond
	// reportDelay is the least time between two statuses that only tell that
	// the confirmed flush has moved.
	reportDelay = 500 * time.Millisecond
	// A server that wants to stop asks for a reply again and again while the
	// confirmed flush stays behind. Otherwise it asks twice a minute.
	spinCount  = 50
	spinWindow = time.Second
)

// stream is the goroutine that owns the replication connection. Nobody else
// reads from it or writes to it.
type stream struct {
	*session
	config  Config
	silence time.Duration // after so much of it the session ends
	log     *zap.Logger

	decoder *decoder
	tracker tracker

	rows   [batchRows]outbox.Row // the next batch: rows[:filled]
	filled int
	size   int // bytes of text in it

	resolved   []uint64 // memory for what inbox.swap returns
	reported   lsn      // the position in the last status
	reportedAt time.Time
	replyAsked bool      // the server wants a status at once
	heardAt    time.Time // when something was last read, or reading began again
	sentAt     time.Time // the server's clock in the last message
	position   lsn       // up to where the stream was read, for people
	spin       spin
	pace       pace
	notices    noticeLog
}

// run reads until the session ends, and returns why.
func (s *stream) run() error {
	s.heardAt = time.Now()
	for {
		select {
		case ctx := <-s.stop:
			return s.finish(ctx)
		case err := <-s.lost:
			return err
		default:
		}
		now := time.Now()
		if err := s.upkeep(now, true); err != nil {
			return err
		}
		if err := s.read(s.wakeAt(now)); err != nil {
			return s.stopBefore(err)
		}
		if err := s.handOver(); err != nil {
			return err
		}
	}
}

// stopBefore ends the session at a message that cannot be read. What came before
// it must not suffer: it would be read again, and dropped again, in every
// session to come. So it is handed over, and the slot is held until it is
// resolved. After any other error the slot may be gone already.
func (s *stream) stopBefore(err error) error {
	if _, ok := errors.AsType[*ColumnError](err); !ok {
		return err
	}
	s.trouble(err)
	if err := s.handOver(); err != nil {
		return err
	}
	limit := time.Now().Add(s.config.OperatorRetry)
	resolved := func(now time.Time) bool { return s.tracker.unresolved == 0 || now.After(limit) }
	if err := s.linger(nil, nil, resolved); err != nil {
		return err
	}
	return errors.Join(err, s.report(time.Now(), false))
}

// upkeep takes the resolved numbers and sends a status if one is due.
func (s *stream) upkeep(now time.Time, reading bool) error {
	s.turned.Store(now.UnixNano())
	if err := s.settle(); err != nil {
		return err
	}
	if elapsed := now.Sub(s.heardAt); reading && elapsed >= s.silence {
		return fmt.Errorf("%w: nothing read for %.0f s", errSilent, elapsed.Seconds())
	}
	elapsed := now.Sub(s.reportedAt)
	switch {
	case elapsed >= s.config.StatusInterval:
		// Only who reads asks for an answer: otherwise answers would pile up.
		return s.report(now, reading)
	case s.replyAsked, s.tracker.confirmed > s.reported && elapsed >= reportDelay:
		return s.report(now, false)
	}
	return nil
}

// settle gives the resolved numbers to the tracker.
func (s *stream) settle() error {
	s.resolved = s.inbox.swap(s.resolved)
	for _, number := range s.resolved {
		if err := s.tracker.resolve(number); err != nil {
			return err
		}
	}
	s.confirmed.Store(uint64(s.tracker.confirmed))
	return nil
}

func (s *stream) report(now time.Time, askReply bool) error {
	if err := s.wire.report(s.tracker.confirmed, askReply); err != nil {
		return err
	}
	s.reported, s.reportedAt, s.replyAsked = s.tracker.confirmed, now, false
	s.stats.statuses.Add(1)
	return nil
}

// wakeAt is when upkeep is due if nothing arrives.
func (s *stream) wakeAt(now time.Time) time.Time {
	at := s.reportedAt.Add(s.config.StatusInterval)
	if silent := s.heardAt.Add(s.silence); silent.Before(at) {
		at = silent
	}
	if poll := now.Add(pollInterval); poll.Before(at) && s.unsettled() {
		at = poll
	}
	return at
}

// unsettled reports whether the confirmed flush may move, or has moved, without
// anything being read.
func (s *stream) unsettled() bool {
	return !s.tracker.settled() || s.tracker.confirmed > s.reported
}

// read takes messages from the connection until a batch is full or nothing
// more is there. It waits for the first, at most until the deadline.
func (s *stream) read(deadline time.Time) error {
	if s.wire.buffered() == 0 {
		s.pace.gather()
	}
	heard := false
	for range readBurst {
		e, err := s.wire.receive(deadline)
		if err != nil {
			return s.explain(err)
		}
		if e.kind == eventNothing {
			break
		}
		heard = true
		if err := s.handle(e); err != nil {
			return err
		}
		if s.filled == batchRows || s.size >= batchBytes {
			break
		}
		if s.wire.buffered() > 0 {
			continue
		}
		// The rest of a transaction is never far away; the deadline is there
		// for when it is.
		if !s.tracker.inTransaction() {
			break
		}
		s.pace.gather()
	}
	if heard {
		s.heardAt = time.Now()
		s.word.heard(s.sentAt, s.heardAt)
	}
	return nil
}

func (s *stream) handle(e event) error {
	switch e.kind {
	case eventData:
		s.sentAt = e.sent
		s.spin = spin{}
		return s.decode(e.data)
	case eventKeepalive:
		return s.keepalive(e)
	case eventNotice:
		s.stats.notices.Add(1)
		// What is not ready is the publication, or a standby that is waited for.
		news := s.notices.write(s.log, e.notice, s.position)
		if skipsPublication(e.notice) || news && e.notice.Code == codeObjectNotReady {
			s.checkNow()
		}
		return nil
	case eventEnd:
		return errStreamEnded
	}
	return nil
}

// decode takes in one message of the output plugin.
func (s *stream) decode(message []byte) error {
	row := &s.rows[s.filled]
	kind, position, err := s.decoder.decode(message, s.newestXID.Load(), row)
	if err != nil {
		return fmt.Errorf("after %s: %w", s.position, err)
	}
	switch kind {
	case kindBegin:
		return s.tracker.begin()
	case kindCommit:
		s.position = position
		s.stats.transactions.Add(1)
		return s.tracker.commit(position)
	case kindInsert:
		return s.add(row)
	case kindIgnored:
		s.stats.ignored.Add(1)
	}
	return nil
}

// add takes the row, which stands behind the batch, into it.
func (s *stream) add(row *outbox.Row) error {
	if err := s.tracker.message(); err != nil {
		return err
	}
	s.filled++
	s.size += row.Size()
	return nil
}

func (s *stream) keepalive(e event) error {
	s.sentAt = e.sent
	s.position = max(s.position, e.end)
	s.tracker.follow(e.end)
	if !e.reply {
		return nil
	}
	s.replyAsked = true
	if s.spin.turn(e.end, time.Now()) {
		return fmt.Errorf("%w: it asked %d times within a second to confirm %s; confirmed is %s",
			errServerStopping, spinCount, e.end, s.tracker.confirmed)
	}
	return nil
}

// handOver gives the batch to the consumer. However long that takes, the server
// hears from us in time.
func (s *stream) handOver() error {
	if s.filled == 0 {
		return nil
	}
	batch := slices.Clone(s.rows[:s.filled])
	select {
	case s.out <- batch:
	default:
		if err := s.linger(s.out, batch, func(time.Time) bool { return false }); err != nil {
			return err
		}
		s.heardAt = time.Now() // it was us who did not listen
	}
	s.pace.batch(s.filled, time.Now())
	s.stats.messages.Add(uint64(s.filled))
	s.stats.bytes.Add(uint64(s.size))
	clear(s.rows[:s.filled]) // do not keep the texts alive
	s.filled, s.size = 0, 0
	return nil
}

// linger keeps the session alive without reading, until the batch is taken or
// enough says so.
func (s *stream) linger(out chan<- []outbox.Row, batch []outbox.Row, enough func(now time.Time) bool) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		now := time.Now()
		if err := s.upkeep(now, false); err != nil {
			return err
		}
		if enough(now) {
			return nil
		}
		select {
		case out <- batch:
			return nil
		case ctx := <-s.stop:
			return s.finish(ctx)
		case err := <-s.lost:
			return err
		case <-ticker.C:
		}
	}
}

// finish ends the stream on our side. The error is ErrClosed, unless the
// bookkeeping is wrong; how it went is in closeErr.
func (s *stream) finish(ctx context.Context) error {
	if err := s.settle(); err != nil {
		return err
	}
	s.closeErr = s.report(time.Now(), false)
	if s.closeErr == nil {
		s.closeErr = s.wire.finish(ctx)
	}
	return ErrClosed
}

// explain adds to an error of the server what a person needs to know.
func (s *stream) explain(err error) error {
	if pgtext.SQLState(err) == codeUndefinedObject {
		return &GapError{Publication: s.config.Publication, Position: s.position.String(), err: err}
	}
	return err
}

// spin counts requests for a reply at an unchanged position.
type spin struct {
	at    lsn
	since time.Time
	count int
}

// turn counts one and reports whether there were too many in a short time.
func (s *spin) turn(at lsn, now time.Time) bool {
	if at != s.at || now.Sub(s.since) > spinWindow {
		*s = spin{at: at, since: now}
	}
	s.count++
	return s.count >= spinCount
}
