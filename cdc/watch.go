package cdc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
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
}

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
	if ctx.Err() != nil || w.conn.IsClosed() {
		return err
	}
	w.setProblem(err)
	switch {
	case err == nil && w.trouble != "":
		w.log.Info("all is well again")
		w.trouble = ""
	case err != nil && w.trouble != err.Error():
		w.log.Error("messages may not come", zap.Error(err), zap.String(fieldHint, hintOf(err)))
		w.trouble = err.Error()
	}
	return nil
}

func (w *watch) reconnect(ctx context.Context) error {
	if w.conn != nil && !w.conn.IsClosed() {
		return nil
	}
	conn, err := w.connect(ctx, "for checks", w.direct)
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
	case sqlState(err) == codeCannotConnectNow:
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

// lease is what the server says about the slot.
type lease struct {
	confirmed lsn // the slot's confirmed flush
	written   lsn // the end of the WAL
}

// selectLease reads shared memory, no table. The position is that of inserted
// WAL, which is never behind what a query can see. pg_snapshot_xmax uses up no
// transaction id.
const selectLease = `
	select coalesce(s.active_pid::text, ''), coalesce(s.confirmed_flush_lsn::text, '0/0'),
	       pg_catalog.pg_current_wal_insert_lsn()::text,
	       pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint,
	       pg_catalog.clock_timestamp()
	from pg_catalog.pg_replication_slots s
	where s.slot_name = $1`

// askLease asks whether the session holds the slot, and notes what else the
// server says: its clock, and its newest transaction id.
func (s *session) askLease(ctx context.Context, conn *pgx.Conn, slot string) (lease, error) {
	var pid, confirmed, written string
	var xid int64
	var clock time.Time
	asked := time.Now()
	err := conn.QueryRow(ctx, selectLease, slot).Scan(&pid, &confirmed, &written, &xid, &clock)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return lease{}, fmt.Errorf("%w: slot %q does not exist", errSlotTaken, slot)
	case err != nil:
		return lease{}, fmt.Errorf("ask for the holder of slot %q: %w", slot, err)
	case pid == "":
		return lease{}, fmt.Errorf("%w: nobody holds slot %q", errSlotTaken, slot)
	case pid != s.pid:
		return lease{}, fmt.Errorf("%w: slot %q is held by pid %s, ours was %s", errSlotTaken, slot, pid, s.pid)
	}
	s.word.held(asked)
	s.word.compare(asked, clock)
	s.newestXID.Store(uint64(xid))

	var l lease
	if l.confirmed, err = parseLSN(confirmed); err != nil {
		return lease{}, err
	}
	l.written, err = parseLSN(written)
	return l, err
}
