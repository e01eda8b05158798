package poll

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/hint"
	"github.com/outbox-relay/outbox-relay/internal/pgtext"
	"github.com/outbox-relay/outbox-relay/internal/vital"
	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// Open takes the lock. It waits while another relay has it, and tries again
// while the server cannot be reached. It returns nil once messages can be read,
// or ctx's error.
//
// What only a person can cure, an [OperatorError], it returns at the first time:
// then it is most likely a setting. A process that had a session before keeps
// trying instead, at long intervals, so that the cure needs no restart.
func (s *Source) Open(ctx context.Context) error {
	if last := s.current.Load(); last != nil && !last.over() {
		return errOpen
	}
	s.enter(vital.Connecting, "")
	for {
		err := s.attempt(ctx)
		s.signs.Note(time.Now(), err)
		if err == nil {
			s.retries.Reset()
			s.noted = ""
			s.enter(vital.Streaming, "")
			return nil
		}
		if ctx.Err() != nil {
			s.enter(vital.Closed, "")
			return ctx.Err()
		}
		s.enter(waitingFor(err), "")
		_, operator := errors.AsType[*OperatorError](err)
		if operator && s.current.Load() == nil {
			return err
		}
		wait := s.waitFor(err)
		s.note(err, wait)
		if !waits.Sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

// objectionInterval is the wait before the relay asks again whether it may take
// what a server has, when that is up to a person.
const objectionInterval = 2 * time.Second

// objects reports whether it is up to a person that the relay goes to work.
func objects(err error) bool {
	_, objects := errors.AsType[*objection](err)
	return objects && hint.Of(err) != ""
}

func (s *Source) waitFor(err error) time.Duration {
	_, operator := errors.AsType[*OperatorError](err)
	switch {
	case objects(err):
		return waits.Around(objectionInterval, 0.1)
	case operator:
		return waits.Around(s.config.OperatorRetry, 0.1)
	}
	return s.retries.Next()
}

// Examine makes the checks that Open makes before it takes the lock, for those
// who want to know without taking it.
func (s *Source) Examine(ctx context.Context) error {
	conn, err := s.connect(ctx, "for the lock", s.direct)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = s.examine(ctx, conn)
	return err
}

// note writes one line for each change of the trouble, however long that lasts.
func (s *Source) note(err error, wait time.Duration) {
	trouble := pgtext.Same(err)
	if trouble == s.noted {
		return
	}
	s.noted = trouble
	cure, write := zap.Skip(), s.log.Warn
	if text := hint.Of(err); text != "" { // it waits for a person
		cure, write = zap.String(fieldHint, text), s.log.Error
	}
	write("table cannot be polled, will be tried again", zap.Error(err), cure, zap.Duration(fieldWait, wait))
}

// attempt tries once to begin a session. While another relay is at work, it
// waits.
func (s *Source) attempt(ctx context.Context) error {
	conn, err := s.connect(ctx, "for the lock", s.direct)
	if err != nil {
		return err
	}
	session, err := s.begin(ctx, conn)
	if err != nil {
		farewell, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = conn.Close(farewell)
		return err
	}
	session.start()
	s.current.Store(session)
	return nil
}

// begin looks at everything that must be right, and takes the lock.
func (s *Source) begin(ctx context.Context, conn *pgx.Conn) (*session, error) {
	id, err := s.examine(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := s.ask(ctx, id); err != nil {
		return nil, err
	}
	slot, taken, err := s.awaitLock(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := s.announceSlot(ctx); err != nil {
		return nil, err
	}
	s.log.Info("lock acquired", zap.Uint32(fieldPID, id.pid), zap.String(fieldSystem, id.system))
	if slot {
		s.log.Warn("a slot of this name keeps WAL that nobody reads in poll mode",
			zap.String(fieldHint, fmt.Sprintf("if poll mode is to stay: select pg_drop_replication_slot('%s')", s.config.Slot)))
	}
	return newSession(s.config, s.log, conn, id.pid, taken), nil
}

// examine makes sure that both connections lead to one primary without a pooler
// before it, and that the table can be read as it has to be.
func (s *Source) examine(ctx context.Context, conn *pgx.Conn) (identity, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	id, err := identify(ctx, conn)
	if err != nil {
		return id, err
	}
	if err := requireDirect(conn, id); err != nil {
		return id, err
	}
	if err := s.examineDatabase(ctx, id); err != nil {
		return id, err
	}
	t := &table{conn: conn, sql: newStatements(s.config.Schema), timeout: s.config.ConnectTimeout, heard: func(time.Time) {}}
	if _, err := t.numbers(ctx); err != nil {
		return id, explainLook(err)
	}
	return id, explainLook(t.requireVisible(ctx))
}

// objection is why the relay may not take what this server has.
type objection struct{ error }

func (o *objection) Unwrap() error { return o.error }

// ask asks whether the relay may go to work on this server.
func (s *Source) ask(ctx context.Context, id identity) error {
	if s.allow == nil {
		return nil
	}
	if err := s.allow(ctx, id.system, id.timeline); err != nil {
		return &objection{err}
	}
	return nil
}

// announceSlot makes it known that no slot shows everything from now on.
func (s *Source) announceSlot(ctx context.Context) error {
	if s.announce == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	if err := s.announce(ctx); err != nil {
		return fmt.Errorf("record that the table is polled: %w", err)
	}
	return nil
}

// examineDatabase makes sure that outcomes are recorded where the messages are.
func (s *Source) examineDatabase(ctx context.Context, expected identity) error {
	conn, err := s.connect(ctx, "database", s.database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	there, err := identify(ctx, conn)
	if err != nil {
		return err
	}
	if !there.sameAs(expected) {
		return fmt.Errorf("%w: to %s, and to %s", errServersDiffer, there, expected)
	}
	return nil
}

// awaitLock takes the lock, for which it waits while another relay has it or
// reads the WAL. It reports whether there is a slot of the relay's name, and
// when the lock was held first.
func (s *Source) awaitLock(ctx context.Context, conn *pgx.Conn) (slot bool, taken time.Time, err error) {
	for told := false; ; {
		asked := time.Now()
		slot, err = s.tryLock(ctx, conn)
		held, blocked := errors.AsType[*heldError](err)
		switch {
		case err == nil:
			return slot, asked, nil
		case ctx.Err() != nil:
			return slot, asked, ctx.Err()
		case !blocked && !errors.Is(err, errHeld):
			return slot, asked, err
		case blocked && !told:
			told = true
			s.signs.Note(time.Now(), nil)
			s.enter(vital.Standby, fmt.Sprintf("pid %d", held.pid))
			s.log.Info("another relay is at work, standing by", zap.Error(held.kind), zap.Int(fieldHolder, held.pid))
		}
		// Often enough to keep the waiting session alive, too.
		if !waits.Sleep(ctx, waits.Around(min(s.config.StandbyInterval, s.config.LeaseTimeout/3), 0.5)) {
			return slot, asked, ctx.Err()
		}
	}
}

func (s *Source) tryLock(ctx context.Context, conn *pgx.Conn) (slot bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	if slot, err = streamed(ctx, conn, s.config.Slot); err != nil {
		return slot, err
	}
	return slot, tryLock(ctx, conn, s.config.Slot)
}

// connect opens a connection.
func (s *Source) connect(ctx context.Context, what string, config *pgx.ConnConfig) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config.Copy()) // pgx and its hooks write to it
	if err != nil {
		return nil, explainConnect(what, config, err)
	}
	return conn, nil
}

// plainConfig is the configuration of a connection that may lead through a
// connection pooler.
func plainConfig(base *pgx.ConnConfig) *pgx.ConnConfig {
	c := base.Copy()
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	seekPrimary(c)
	return c
}
