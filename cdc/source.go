package cdc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/vital"
	"github.com/outbox-relay/outbox-relay/internal/waits"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// Source reads messages from a replication slot, in sessions from Open to
// Close. See the package documentation for what holds between them.
//
// Open, Next and Close are for one goroutine at a time, except that Close may
// be called while Next waits. Everything else is safe for concurrent use.
type Source struct {
	config      Config
	database    *pgx.ConnConfig // where the relay's own SQL goes; perhaps a pooler
	direct      *pgx.ConnConfig // SQL straight to the server of the stream
	replication *pgx.ConnConfig // as given
	hosts       *hosts          // which of several is the primary
	log         *zap.Logger

	current atomic.Pointer[session] // the last session, open or not; nil before the first
	state   atomic.Int32
	changed atomic.Int64 // when the state was another one last, in nanoseconds
	signs   vital.Pulse  // what is the matter; of Open and of the watch, one after the other
	keeper  atomic.Pointer[keeper]
	stats   counters

	// Of Open alone.
	retries   waits.Backoff
	patience  int                                 // how many times longer than the settings the timeouts of the next session are
	served    func(context.Context) (bool, error) // did a slot of this name serve before; may be nil
	announce  func(context.Context) error         // called before a slot is made; may be nil
	allow     func(ctx context.Context, system string, timeline int32) error
	rewound   *session               // the last session of which it is told that the server went back behind it
	created   bool                   // the slot was made, and no session has told it yet
	noted     string                 // the trouble in the last line of the log, as [pgtext.Same]
	lossNoted bool                   // the loss of the slot is counted
	doubts    atomic.Pointer[string] // of the publication, at the last look
}

// New makes a Source. It connects nothing. Both configurations lead to the same
// database: database the way the relay's other SQL goes, replication straight
// to the server.
func New(config Config, database, replication *pgx.ConnConfig, log *zap.Logger) *Source {
	choice := new(hosts)
	s := &Source{
		config:      config,
		database:    choice.chooseIn(plainConfig(database), config.ConnectTimeout),
		direct:      choice.chooseIn(sqlConfig(replication), config.ConnectTimeout),
		replication: choice.chooseIn(replication.Copy(), config.ConnectTimeout),
		hosts:       choice,
		log:         log.Named("cdc").With(zap.String(fieldSlot, config.Slot)),
		retries:     waits.Backoff{Least: config.RetryMin, Most: config.RetryMax},
		patience:    1,
	}
	s.changed.Store(time.Now().UnixNano())
	return s
}

// BeforeCreate sets what is asked and told before a slot is made. served reports
// whether a slot of this name served a relay before: then its absence is an
// accident, also at the first Open. announce comes next, and no slot is made if it
// returns an error. The server may finish making a slot for a process that is
// dead by then: what announce makes durable is how the next one knows. It is for
// the time before the first Open.
func (s *Source) BeforeCreate(served func(context.Context) (bool, error), announce func(context.Context) error) {
	s.served, s.announce = served, announce
}

// errOpen says that the caller forgot to Close.
var errOpen = errors.New("the session before is still open")

// Next returns the next messages of the session, at least one. The first ones
// may have been handled in an earlier session. An error other than the
// context's ends the session.
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
// once. A number that was not handed over, or comes twice, ends the session:
// from then on the confirmed flush could not be trusted.
func (s *Source) Resolve(numbers []uint64) {
	if session := s.current.Load(); session != nil {
		session.inbox.add(numbers)
	}
}

// Position is the confirmed flush of the session, also of one that has ended.
func (s *Source) Position() string {
	if session := s.current.Load(); session != nil {
		return lsn(session.confirmed.Load()).String()
	}
	return lsn(0).String()
}

// LastWord is the last moment at which the session provably held the slot, also
// of one that has ended. It stays fresh while nobody calls Next, and is not
// refreshed by what had waited in a buffer.
func (s *Source) LastWord() time.Time {
	if session := s.current.Load(); session != nil {
		return session.word.last()
	}
	return time.Time{}
}

// Close reports the last position, waits until the server has let the slot go,
// at most until ctx ends, and ends the session. After a session that ended by
// itself it does nothing but wait for its goroutines.
func (s *Source) Close(ctx context.Context) error {
	session := s.current.Load()
	if session == nil {
		return nil
	}
	err := session.close(ctx)
	s.become(Closed)
	return err
}

// Created reports whether Open made the slot of this session: messages that
// were committed before are in the table only.
func (s *Source) Created() bool {
	session := s.current.Load()
	return session != nil && session.created
}

// StartPosition is the slot's confirmed flush at the session's beginning, as
// Postgres writes a pg_lsn. If it differs from the last Position of an earlier
// session, somebody moved the slot or made it anew.
func (s *Source) StartPosition() string {
	if session := s.current.Load(); session != nil {
		return session.start.String()
	}
	return lsn(0).String()
}

// System identifies the server of the session: its system identifier, and the
// timeline, which a promotion changes.
func (s *Source) System() (identifier string, timeline int32) {
	if session := s.current.Load(); session != nil {
		return session.server.system, session.server.timeline
	}
	return "", 0
}

// State is what the Source is doing.
type State int32

// The states.
const (
	Closed     State = iota // no session
	Connecting              // Open looks for a server and its slot
	Standby                 // Open waits while another relay has the slot
	Streaming               // a session is open
	Held                    // Open waits for a person: the server is another one than before
)

var stateNames = [...]string{Closed: "closed", Connecting: "connecting", Standby: "standby", Streaming: "streaming", Held: "held"}

// String is the state in logs, metrics and the status.
func (s State) String() string { return stateNames[s] }

// State is what the Source is doing.
func (s *Source) State() State {
	state := State(s.state.Load())
	if session := s.current.Load(); state == Streaming && session.over() {
		return Closed
	}
	return state
}

// Problem is what keeps messages from coming, or will, as far as it is known:
// why Open is not done yet, or what the last look at publication, table and
// slot showed. Nil if all is well.
func (s *Source) Problem() error {
	if trouble := s.signs.Trouble(); trouble != nil {
		return trouble.Err
	}
	return nil
}

func (s *Source) setProblem(err error) { s.signs.Note(time.Now(), err) }

// Stats counts what the Source has seen since it was made, over all sessions.
func (s *Source) Stats() Stats { return s.stats.read() }
