package poll

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
	"github.com/outbox-relay/outbox-relay/internal/vital"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// session is one possession of the lock. One goroutine owns its connection: it
// reads ahead by one chunk, and asks for a sign of life while it waits.
type session struct {
	config Config
	log    *zap.Logger
	conn   *pgx.Conn
	pid    uint32 // of the backend that has the lock
	table  *table
	reader *reader

	out  chan []outbox.Row
	word atomic.Pointer[time.Time]

	pulse vital.Pulse // of the owner

	mu       sync.Mutex
	resolved []uint64 // taken by the owner

	warned string // the transaction that the log has named
	locked bool   // the log has told that the table is locked

	stop    context.CancelFunc
	once    sync.Once
	goodbye chan context.Context // capacity 1: until when a farewell may take

	done     chan struct{} // closed when the owner has ended; then
	err      error         // is why, never nil,
	closeErr error         // and how the farewell went
}

func newSession(config Config, log *zap.Logger, conn *pgx.Conn, pid uint32, taken time.Time) *session {
	s := &session{
		config: config, log: log, conn: conn, pid: pid,
		out: make(chan []outbox.Row), goodbye: make(chan context.Context, 1), done: make(chan struct{}),
	}
	s.heard(taken)
	s.table = &table{conn: conn, sql: newStatements(config.Schema), timeout: config.ConnectTimeout, heard: s.heard}
	s.reader = &reader{table: s.table, patience: config.Patience, handed: map[uint64]int64{}}
	return s
}

func (s *session) heard(at time.Time) { s.word.Store(&at) }

// start lets the owner run until the session ends.
func (s *session) start() {
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	go func() {
		defer close(s.done)
		defer s.stop()
		s.err = s.run(ctx)
		s.closeErr = s.leave()
	}()
}

// leave gives the lock back.
func (s *session) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	select {
	case ctx = <-s.goodbye:
	default:
	}
	return hangUp(ctx, s.conn, s.config.Slot)
}

// close ends the session and waits for that.
func (s *session) close(ctx context.Context) error {
	s.once.Do(func() {
		s.goodbye <- ctx
		s.stop()
	})
	<-s.done
	return s.closeErr
}

// over reports whether the session has ended.
func (s *session) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// resolve takes in the numbers of messages whose outcomes are durable.
func (s *session) resolve(numbers []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resolved = append(s.resolved, numbers...)
}

func (s *session) takeResolved() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	numbers := s.resolved
	s.resolved = nil
	return numbers
}

// run hands messages over until ctx ends or the server is lost.
func (s *session) run(ctx context.Context) error {
	beat := time.NewTicker(beatInterval)
	defer beat.Stop()
	for {
		s.pulse.Turn(time.Now())
		s.reader.resolve(s.takeResolved())
		rows, err := s.read(ctx)
		if ctx.Err() != nil {
			return ErrClosed
		}
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			if err := s.hand(ctx, rows, beat.C); err != nil {
				return err
			}
		}
		if s.reader.more(rows) {
			continue
		}
		s.tellObstacle(ctx)
		if err := s.rest(ctx, beat.C); err != nil {
			return err
		}
	}
}

// read reads the next messages. A table that somebody has locked is nothing to
// end a session for.
func (s *session) read(ctx context.Context) ([]outbox.Row, error) {
	rows, err := s.reader.read(ctx, time.Now())
	if pgtext.SQLState(err) != codeLockTimeout {
		if err == nil {
			s.pulse.Note(time.Now(), nil)
		}
		s.locked = s.locked && err != nil
		return rows, err
	}
	s.pulse.Note(time.Now(), fmt.Errorf("table is locked by somebody: %w", err))
	if !s.locked {
		s.locked = true
		s.log.Warn("table is locked by somebody, messages wait", zap.Error(err))
	}
	return nil, nil
}

// hand waits until the messages are taken.
func (s *session) hand(ctx context.Context, rows []outbox.Row, beat <-chan time.Time) error {
	for {
		select {
		case s.out <- rows:
			return nil
		case <-beat:
			if err := s.beat(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ErrClosed
		}
	}
}

// rest waits for the next look.
func (s *session) rest(ctx context.Context, beat <-chan time.Time) error {
	timer := time.NewTimer(s.config.Interval)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-beat:
			if err := s.beat(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ErrClosed
		}
	}
}

// beat keeps the lease alive.
func (s *session) beat(ctx context.Context) error {
	s.pulse.Turn(time.Now())
	pid, err := s.table.beat(ctx)
	switch {
	case ctx.Err() != nil:
		return ErrClosed
	case err != nil:
		return err
	case pid != s.pid:
		return errLost
	}
	return nil
}

// tellObstacle names a transaction that holds back ordered messages, once, and
// says when they go on.
func (s *session) tellObstacle(ctx context.Context) {
	w, found := s.reader.obstacle(time.Now())
	switch {
	case found && w.transaction != s.warned:
		s.warned = w.transaction
		s.log.Warn("an open transaction holds back messages with an ordering key", append(s.describe(ctx, w),
			zap.Duration(fieldElapsed, time.Since(w.since).Round(time.Second)),
			zap.String(fieldHint, "end it: it has written messages, and ordered messages with higher ids wait for its commit"))...)
	case !found && s.warned != "":
		s.warned = ""
		s.log.Info("ordered messages go on")
	}
}

// describe says what is known about a transaction.
func (s *session) describe(ctx context.Context, w writer) []zap.Field {
	if w.pid == 0 {
		return []zap.Field{zap.String(fieldTransaction, "prepared, see pg_prepared_xacts")}
	}
	var application, role, state, since string
	err := s.table.ask(ctx, "look for the session", func(ctx context.Context) error {
		err := s.conn.QueryRow(ctx, sqlWho, w.pid).Scan(&application, &role, &state, &since)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		s.log.Debug("transaction cannot be described", zap.Error(err))
	}
	return []zap.Field{
		zap.Int(fieldPID, w.pid), zap.String(fieldApplication, application), zap.String(fieldRole, role),
		zap.String(fieldState, state), zap.String(fieldSince, since),
	}
}
