package cdc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/hint"
	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// watch is the goroutine that asks the server about the session over an SQL
// connection of its own: every few seconds whether it still holds the slot, and
// now and then whether messages can come at all. The stream cannot tell either
// while nobody takes messages from it, and never tells the second.
type watch struct {
	*Source
	session *session
	conn    *pgx.Conn // nil while there is none
	trouble string    // in the last line of the log
	refused error     // what the server said last, if it refused the role
	until   time.Time // no other attempt before
}

// refusalPause is the wait after the server refused the role or its password:
// where failures are counted, one with every question would lock the role out.
const refusalPause = 10 * time.Second

// run ends with ctx.
func (w *watch) run(ctx context.Context) {
	defer func() {
		if w.conn != nil {
			hangUp(w.conn)
		}
	}()
	leases := time.NewTicker(w.config.LeaseInterval)
	defer leases.Stop()
	checks := time.NewTicker(w.config.CheckInterval)
	defer checks.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-leases.C:
			err = w.askLease(ctx)
		case <-checks.C:
			err = w.check(ctx)
		case <-w.session.checkSoon:
			err = w.check(ctx)
		}
		if err != nil && ctx.Err() == nil {
			w.react(err)
		}
	}
}

// askLease renews the proof that the session holds the slot.
func (w *watch) askLease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.config.ConnectTimeout)
	defer cancel()
	if err := w.reconnect(ctx); err != nil {
		return err
	}
	_, err := w.session.askLease(ctx, w.conn, w.config.Slot)
	return err
}

// check looks at everything that could have been changed under a stream. What
// it finds is a state, not an event: it is written to the log once.
func (w *watch) check(ctx context.Context) error {
	if err := w.reconnect(ctx); err != nil {
		return err
	}
	_, err := w.examine(ctx, w.conn)
	if err == nil {
		err = w.examineSlot(ctx, w.conn)
	}
	// A server that stops refuses new connections while its stream still goes on, but
	// answers on none of the old ones: that is no finding.
	if err != nil && !w.answers(ctx) || ctx.Err() != nil {
		return err
	}
	w.setProblem(err)
	switch {
	case err == nil && w.trouble != "":
		w.log.Info("all is well again")
		w.trouble = ""
	case err != nil && w.trouble != err.Error():
		w.log.Error("messages may not come", zap.Error(err), zap.String(fieldHint, hint.Of(err)))
		w.trouble = err.Error()
	}
	return nil
}

// answers reports whether the server still answers on the open connection.
func (w *watch) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, w.config.ConnectTimeout)
	defer cancel()
	return w.conn.Ping(ctx) == nil
}

func (w *watch) reconnect(ctx context.Context) error {
	if w.conn != nil && !w.conn.IsClosed() {
		return nil
	}
	if w.refused != nil && time.Now().Before(w.until) {
		return w.refused
	}
	conn, err := w.connect(ctx, "for checks", w.direct)
	w.refused = nil
	if errors.Is(err, ErrPrivilege) || errors.Is(err, ErrTrust) {
		w.refused, w.until = err, time.Now().Add(refusalPause)
		w.setProblem(err)
	}
	if err != nil {
		return err
	}
	w.conn = conn
	return nil
}

// react ends the session if the error shows that it is over. Anything else is
// an SQL connection in trouble: the stream may be well, and the next question
// opens a new one.
func (w *watch) react(err error) {
	switch {
	case errors.Is(err, errSlotTaken):
		w.session.end(err)
	case pgtext.SQLState(err) == codeCannotConnectNow:
		// The stream is there, so the server is not starting: it is stopping,
		// and waits for us.
		w.session.end(fmt.Errorf("%w: %w", errServerStopping, err))
	default:
		w.log.Debug("question to the server failed", zap.Error(err))
		if w.conn != nil {
			hangUp(w.conn)
			w.conn = nil
		}
	}
}
