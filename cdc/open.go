package cdc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/hint"
	"github.com/outbox-relay/outbox-relay/internal/pgtext"
	"github.com/outbox-relay/outbox-relay/internal/waits"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// Open takes the stream. It waits while another relay has the slot, and tries
// again while the server cannot be reached. It returns nil once messages can be
// read, or ctx's error.
//
// What only a person can cure, an [OperatorError], it returns at the first time:
// then it is most likely a setting. A process that had a session before keeps
// trying instead, at long intervals, so that the cure needs no restart.
func (s *Source) Open(ctx context.Context) error {
	if err := s.leaveLast(ctx); err != nil {
		return err
	}
	s.become(Connecting)
	for {
		err := s.attempt(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			s.become(Closed)
			return ctx.Err()
		}
		s.setProblem(err)
		next := remedyFor(err)
		if next == askOperator && s.current.Load() == nil {
			s.become(Closed)
			return err
		}
		if err := s.rest(ctx, "stream cannot be opened, will be tried again", next, err); err != nil {
			s.become(Closed)
			return err
		}
	}
}

// leaveLast waits for the end of the last session, and then for as long as the
// way in which it ended asks for: an error that comes back with every session
// must not become a busy loop.
func (s *Source) leaveLast(ctx context.Context) error {
	last := s.current.Load()
	if last == nil {
		return nil
	}
	if !last.over() {
		return errOpen
	}
	last.tasks.Wait()
	s.learn(last)
	next := remedyFor(last.err)
	if errors.Is(last.err, ErrClosed) || next == retry && last.useful(s.config.RetryMax) {
		return nil
	}
	s.setProblem(last.err)
	return s.rest(ctx, "stream ended, will be opened again", next, last.err)
}

// patienceMax makes 8 minutes of the default of WALSenderTimeout.
const patienceMax = 32

// learn draws the conclusions from a session. One that got somewhere ends all
// trouble. After one that broke off in silence and got nowhere, the next one is
// more patient: the server may be at work for longer than the timeouts on
// something that it cannot interrupt, such as a transaction with very many
// changes of the catalog, and would begin again at it every time.
func (s *Source) learn(last *session) {
	switch {
	case last.progressed():
		s.retries.Reset()
		s.noted, s.patience = "", 1
	case errors.Is(last.err, errSilent), errors.Is(last.err, io.ErrUnexpectedEOF):
		s.patience = min(2*s.patience, patienceMax)
	}
}

func (s *Source) patiently(timeout time.Duration) time.Duration {
	return time.Duration(s.patience) * timeout
}

// rest waits before the next attempt. It writes one line for each change of the
// trouble, however long that lasts.
func (s *Source) rest(ctx context.Context, what string, next remedy, trouble error) error {
	wait := s.waitFor(next)
	switch next {
	case hold:
		s.become(Held)
	case standBy: // as it was
	default:
		s.become(Connecting)
	}
	if text := pgtext.Same(trouble); next != standBy && text != s.noted {
		s.noted = text
		write := s.log.Warn
		if next == askOperator || next == retrySlowly || next == hold {
			write = s.log.Error
		}
		write(what, zap.Error(trouble), zap.String(fieldHint, hint.Of(trouble)), zap.Duration(fieldWait, wait))
	}
	if !waits.Sleep(ctx, wait) {
		return ctx.Err()
	}
	return nil
}

func (s *Source) waitFor(next remedy) time.Duration {
	switch next {
	case standBy:
		return waits.Around(s.config.StandbyInterval, 0.5)
	case pause:
		return waits.Around(s.config.ShutdownPause, 0.1)
	case hold:
		return waits.Around(holdInterval, 0.1)
	case retrySlowly, askOperator:
		return waits.Around(s.config.OperatorRetry, 0.1)
	default:
		return s.retries.Next()
	}
}

// attempt tries once to take the stream. While another relay has it, it waits. If
// only primaries are there that a promotion left behind, one of them is taken:
// whether it will do is not decided here.
func (s *Source) attempt(ctx context.Context) error {
	if !s.hosts.known() {
		s.survey(ctx)
	}
	err := s.take(ctx)
	if errors.Is(err, errStale) {
		s.hosts.beLenient(true)
		defer s.hosts.beLenient(false)
		err = s.take(ctx)
	}
	return err
}

// take connects, takes the slot and starts the session.
func (s *Source) take(ctx context.Context) error {
	conn, err := s.connect(ctx, "for checks", s.direct)
	if err != nil {
		return err
	}
	session, err := s.takeSlot(ctx, conn)
	if err != nil {
		hangUp(conn)
		return err
	}
	s.launch(session, conn)
	return nil
}

// takeSlot looks at everything that must be right, and then takes the slot. The
// order matters: nothing is made on a server that cannot work, and the
// publication is there before the slot, which otherwise would never get past
// the messages in between.
func (s *Source) takeSlot(ctx context.Context, conn *pgx.Conn) (*session, error) {
	server, err := s.awaitSlot(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := s.admit(ctx, server.identity); err != nil {
		return nil, err
	}
	wire, here, err := s.dialSame(ctx, server)
	if err != nil {
		return nil, sendersUsed(ctx, conn, err)
	}
	s.noticeRestore(here)
	session, err := s.beginSession(ctx, conn, server, wire, here)
	if err != nil {
		wire.close()
		return nil, err
	}
	return session, nil
}

// dialSame opens the replication connection and makes sure that it leads to the
// server that was examined. An old primary may well go on after a failover.
func (s *Source) dialSame(ctx context.Context, server server) (*wire, identity, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	wire, err := dial(ctx, streamConfig(s.replication, s.patiently(s.config.WALSenderTimeout)))
	if err != nil {
		return nil, identity{}, err
	}
	here, err := wire.identify(ctx)
	if err == nil && !here.sameAs(server.identity) {
		err = fmt.Errorf("%w: SQL to %s, replication to %s", errServersDiffer, server.identity, here)
	}
	if err != nil {
		wire.close()
		return nil, identity{}, err
	}
	return wire, here, nil
}

// beginSession starts the stream.
func (s *Source) beginSession(ctx context.Context, conn *pgx.Conn, server server, wire *wire, here identity) (*session, error) {
	if err := s.ensureSlot(ctx, conn, server); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	asked := time.Now()
	if err := wire.start(ctx, s.config.Slot, s.config.Publication); err != nil {
		if pgtext.SQLState(err) == codeInUse {
			return nil, fmt.Errorf("%w: %w", errSlotBusy, err)
		}
		return nil, err
	}
	session := &session{
		wire: wire, created: s.created, server: here, pid: here.pid, begun: asked,
		out: make(chan []outbox.Row), stop: make(chan context.Context, 1), lost: make(chan error, 1),
		checkSoon: make(chan struct{}, 1), done: make(chan struct{}), stats: &s.stats, trouble: s.setProblem,
	}
	session.word.held(asked)
	confirmed, err := session.askLease(ctx, conn, s.config.Slot)
	if err != nil {
		return nil, err
	}
	// Only now, with the slot in hand, nobody else can move it or read on.
	session.start = confirmed
	session.confirmed.Store(uint64(confirmed))
	return session, nil
}

// launch starts the goroutines of the session. They outlive Open; the end of
// the owner ends the other, and Close waits for both.
func (s *Source) launch(session *session, conn *pgx.Conn) {
	s.created = false
	s.hosts.settle(session.server.system, session.server.timeline)
	s.setProblem(nil)
	s.stats.sessions.Add(1)
	owner := &stream{
		session: session, config: s.config, silence: s.patiently(s.config.SilenceTimeout), log: s.log,
		decoder: newDecoder(s.config.Schema), position: session.start,
		tracker: tracker{confirmed: session.start},
	}
	watching, stop := context.WithCancel(context.Background())
	watch := &watch{Source: s, session: session, conn: conn}
	session.tasks.Go(func() {
		session.err = owner.run()
		s.stats.ends.add(endOf(session.err))
		session.inbox.close()
		session.wire.close()
		close(session.done)
		stop()
	})
	session.tasks.Go(func() { watch.run(watching) })

	s.current.Store(session)
	s.become(Streaming)
	s.log.Info("slot acquired",
		zap.Stringer(fieldLSN, session.start), zap.Bool(fieldCreated, session.created), zap.String(fieldPID, session.pid),
		zap.String(fieldSystem, session.server.system), zap.Int32(fieldTimeline, session.server.timeline))
}

func (s *Source) inspectSlot(ctx context.Context, conn *pgx.Conn) (slot, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	return inspectSlot(ctx, conn, s.config.Slot)
}

// connect opens an SQL connection.
func (s *Source) connect(ctx context.Context, what string, config *pgx.ConnConfig) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, explainConnect(what, err)
	}
	return conn, nil
}

// hangUp closes an SQL connection; nothing depends on how well that goes.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}
