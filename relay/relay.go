package relay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/vital"
	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// Relay moves messages from a source to a publisher.
type Relay struct {
	cfg       Config
	log       *zap.Logger
	dialer    *dialer
	source    Source
	publisher Publisher
	writing   *store // outcomes
	reading   *store // look-ups of the intake, so that they never wait behind a write
	loading   *store // deferred messages, likewise
	sweeping  *store // the sweep and retention, which may take their time

	last      cluster // that the stream came from last; of Open alone
	objection error   // why dispatching is held; of Open alone

	epoch    int64         // the last one of this process, 0 without
	unproven time.Duration // what its sessions must last yet, until it is sure that nothing kills it
	counted  bool          // the start of this process is on record, and not taken back
	before   starts        // what the row said of earlier ones; of the only worker of a careful session
	after    func(time.Duration) <-chan time.Time
	farewell time.Duration // closeTimeout, but for tests: bounds what the end of a session waits for the server

	// What State tells; see there.
	started     time.Time
	step        atomic.Pointer[step]
	stopping    atomic.Pointer[time.Time] // when a stop was asked for
	session     atomic.Pointer[session]   // the one that lasts
	sessions    atomic.Uint64
	interrupted atomic.Pointer[vital.Trouble]
	totals      totals
	counts      *counts

	mu sync.Mutex
	// carried are the outcomes that the last session could not write, by
	// message: what the queue accepted is marked, not sent again, when the
	// message is read once more.
	carried map[int64]*outcome
}

// New returns a relay. Nothing is opened before [Relay.Run].
func New(cfg Config, database *pgx.ConnConfig, source Source, publisher Publisher, log *zap.Logger) *Relay {
	log = log.Named("relay").With(zap.String(keySlot, cfg.Slot))
	dialer := newDialer(database, cfg.Slot, log)
	r := &Relay{
		cfg:       cfg,
		log:       log,
		dialer:    dialer,
		source:    source,
		publisher: publisher,
		writing:   newStore(dialer, cfg.Schema, cfg.Slot),
		reading:   newStore(dialer, cfg.Schema, cfg.Slot),
		loading:   newStore(dialer, cfg.Schema, cfg.Slot),
		sweeping:  newStore(dialer, cfg.Schema, cfg.Slot),
		after:     time.After,
		farewell:  closeTimeout,
		started:   time.Now(),
		counts:    newCounts(cfg.MetricsQueues),
		carried:   map[int64]*outcome{},
	}
	r.enter(stepWaiting, nil)
	source.BeforeTake(r.allow)
	source.BeforeCreate(r.writing.slotServed, r.expectNewSlot)
	return r
}

// Run moves messages until ctx ends, which is not an error, or until an error
// that no retry can cure. When ctx ends, requests in flight have DrainTimeout
// to finish, and their outcomes are written, before the stream is given back.
// When the stream is lost, everything in hand is dropped at once, since
// somebody else may be delivering it, and Run takes the stream again.
func (r *Relay) Run(ctx context.Context) error {
	defer r.closeStores()
	defer context.AfterFunc(ctx, r.noteStop)()
	for failures := 0; ; {
		r.enter(stepOpening, nil)
		stop := r.redeem(ctx)
		err := r.source.Open(ctx)
		stop()
		if err != nil {
			if ctx.Err() == nil {
				return err
			}
			if r.objection != nil {
				r.log.Warn("stopped while dispatching was held", zap.Error(r.objection))
			}
			return nil
		}
		began := time.Now()
		useful, err := r.runSession(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case isPermanent(err):
			return err
		case errors.Is(err, ErrEpochLost):
			r.log.Info("session ended", zap.Error(err))
		default:
			r.log.Warn("session ended", zap.Error(err))
		}
		r.interrupted.Store(&vital.Trouble{Err: err, Since: time.Now()})
		r.enter(stepResting, err)
		// Only sessions that come to nothing are spread out: a network that breaks
		// every few seconds must not leave messages waiting for half a minute.
		if failures++; useful || time.Since(began) > time.Minute {
			failures = 1
		}
		waits.Sleep(ctx, backoff(failures, 100*time.Millisecond, 30*time.Second))
	}
}

func (r *Relay) closeStores() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, s := range r.stores() {
		s.close(ctx)
	}
}

// stores are the connections of the relay by what they are for.
func (r *Relay) stores() []namedStore {
	return []namedStore{{"writing", r.writing}, {"reading", r.reading}, {"loading", r.loading}, {"sweeping", r.sweeping}}
}

type namedStore struct {
	name string
	*store
}

// closeTimeout bounds what a stop waits for the server after the drain.
const closeTimeout = 3 * time.Second
