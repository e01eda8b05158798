package poll

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/vital"
	"github.com/outbox-relay/outbox-relay/internal/waits"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// Source reads messages from the table, in sessions from Open to Close. See the
// package documentation for what holds between them.
//
// Open, Next and Close are for one goroutine at a time, except that Close may be
// called while Next waits. Everything else is safe for concurrent use.
type Source struct {
	config   Config
	database *pgx.ConnConfig // where the relay's own SQL goes; perhaps a pooler
	direct   *pgx.ConnConfig // straight to the server
	log      *zap.Logger

	current atomic.Pointer[session] // the last session, open or not; nil before the first
	stage   atomic.Pointer[stage]
	signs   vital.Pulse // what is the matter while no session is open

	// Of Open alone.
	allow    func(ctx context.Context, system string, timeline int32) error
	announce func(context.Context) error
	retries  waits.Backoff
	noted    string // the trouble in the last line of the log
}

// New makes a Source. It connects nothing. Both configurations lead to the same
// database: database the way the relay's other SQL goes, direct straight to the
// server.
func New(config Config, database, direct *pgx.ConnConfig, log *zap.Logger) *Source {
	s := &Source{
		config:   config,
		database: plainConfig(database),
		direct:   leaseConfig(direct, config.LeaseTimeout),
		log:      log.Named("poll").With(zap.String(fieldSlot, config.Slot)),
		retries:  waits.Backoff{Least: config.RetryMin, Most: config.RetryMax},
	}
	s.enter(vital.Closed, "")
	return s
}

// BeforeTake sets what Open calls once it knows the server, and before it takes
// the lock. It is for the time before the first Open.
func (s *Source) BeforeTake(allow func(ctx context.Context, system string, timeline int32) error) {
	s.allow = allow
}

// BeforeCreate sets announce, which Open calls once it has the lock. No slot is
// made, but from now on none shows what is polled: one that comes later is a new
// one, and one that stays behind is no better. It is for the time before the
// first Open.
func (s *Source) BeforeCreate(_ func(context.Context) (bool, error), announce func(context.Context) error) {
	s.announce = announce
}

// Created is always false: the table shows everything, whenever it was
// committed.
func (s *Source) Created() bool { return false }

// Next returns the next messages of the session, at least one. An error other
// than the context's ends the session.
func (s *Source) Next(ctx context.Context) ([]outbox.Row, error) {
	session := s.current.Load()
	if session == nil {
		return nil, ErrClosed
	}
	select {
	case rows := <-session.out:
		return rows, nil
	case <-session.done:
		return nil, session.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Resolve tells that the outcomes of these messages are durable, each number
// once.
func (s *Source) Resolve(numbers []uint64) {
	if session := s.current.Load(); session != nil {
		session.resolve(numbers)
	}
}

// NoPosition is the Position of a source without WAL.
const NoPosition = "0/0"

// Position is always [NoPosition], and so is confirmed_lsn in relays: nothing is
// confirmed to the server, and a slot that comes later is not compared with a
// position of another kind.
func (s *Source) Position() string { return NoPosition }

// StartPosition is [NoPosition], too.
func (s *Source) StartPosition() string { return NoPosition }

// LastWord is the last moment at which the session provably held the lock, also
// of one that has ended. It stays fresh while nobody calls Next.
func (s *Source) LastWord() time.Time {
	if session := s.current.Load(); session != nil {
		return *session.word.Load()
	}
	return time.Time{}
}

// Close gives the lock back, at most until ctx ends, and ends the session. After
// a session that ended by itself it does nothing.
func (s *Source) Close(ctx context.Context) error {
	session := s.current.Load()
	if session == nil || session.over() {
		return nil
	}
	return session.close(ctx)
}
