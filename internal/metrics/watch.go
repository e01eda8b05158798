package metrics

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
)

const (
	// readInterval is how often Postgres is asked, once for each scrape in the usual
	// interval. If it takes the server long, it is asked less often: a twentieth of
	// the time is for that, down to readSeldom, which is before figures are too old.
	readInterval = 15 * time.Second
	readSeldom   = 45 * time.Second
	readShare    = 20
	// readTimeout bounds one read with its connection: it must not last until the
	// next one.
	readTimeout = 12 * time.Second
	// connectionAge is how long a connection is used: a new one shows whether one can
	// still be made, and which certificate the server has now.
	connectionAge = time.Hour
	// byeTimeout bounds the farewell to the server.
	byeTimeout = 2 * time.Second
)

// watch asks Postgres from time to time and keeps the answer. One connection lasts
// as long as it works, up to connectionAge.
type watch struct {
	connect      func(context.Context) (*pgx.Conn, error)
	state        func() relay.State
	schema, slot string
	log          *zap.Logger
	now          func() time.Time

	seen atomic.Pointer[sight]

	// Of run alone.
	conn      *pgx.Conn
	connected time.Time
	course    course
	told      bool
}

// sight is what was seen last.
type sight struct {
	figures  *status.Figures // nil before the first read
	at       time.Time       // when; before the first read, when the watch was made
	took     time.Duration
	failures uint64
	// expiries are when certificates expire, by whose they are.
	expiries map[string]time.Time
	// What follows is known from several looks; nil while it is not.
	timeToLoss, horizonHeld, own *float64
}

func (w *watch) last() *sight { return w.seen.Load() }

// SlotDanger is what [status.Slot.Danger] says of the slot, by the last look that
// got an answer; empty before there was one.
func (m *Metrics) SlotDanger() (text, hint string) {
	seen := m.watch.last()
	if seen.figures == nil || seen.figures.Slot == nil {
		return "", ""
	}
	return seen.figures.Slot.Danger(seen.timeToLoss)
}

// run reads until ctx ends.
func (w *watch) run(ctx context.Context) {
	defer w.disconnect()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		w.read(ctx)
		timer.Reset(pause(w.last().took))
	}
}

// pause is the wait after a look that took so long.
func pause(took time.Duration) time.Duration {
	return min(max(readInterval, readShare*took), readSeldom)
}

// read asks once.
func (w *watch) read(ctx context.Context) {
	began := w.now()
	figures, err := w.ask(ctx)
	if ctx.Err() != nil {
		return
	}
	next := *w.last()
	next.took = w.now().Sub(began)
	if err != nil {
		next.failures++
		w.seen.Store(&next)
		w.disconnect()
		w.tell(err)
		return
	}
	w.told = false
	next.figures, next.at = figures, w.now()
	next.expiries = expiries(w.conn)
	w.course.see(&next)
	w.seen.Store(&next)
}

// tell logs the first failure of a row: the rest of the relay says more of a
// database that does not answer.
func (w *watch) tell(err error) {
	if !w.told {
		w.log.Warn("metrics of the database cannot be read", zap.Error(err))
	}
	w.told = true
}

func (w *watch) ask(ctx context.Context) (*status.Figures, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, errSlow)
	defer cancel()
	if w.conn != nil && w.now().Sub(w.connected) >= connectionAge {
		w.disconnect()
	}
	if w.conn == nil || w.conn.IsClosed() {
		conn, err := w.connect(ctx)
		if err != nil {
			return nil, err
		}
		w.conn, w.connected = conn, w.now()
	}
	before := w.state()
	figures, err := status.ReadFigures(ctx, w.conn, w.schema, w.slot)
	switch {
	case err == nil:
		figures.Hear(&before)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return figures, err
}

// errSlow says that a read was given up.
var errSlow = errors.New("no answer within " + readTimeout.String())

func (w *watch) disconnect() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), byeTimeout)
	defer cancel()
	_ = w.conn.Close(ctx)
	w.conn = nil
}
