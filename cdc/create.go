package cdc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/blocker"
	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// ensureSlot makes the slot if it is missing. If it never served, that is a matter
// of course; otherwise, and if the slot is there without its WAL, it is an
// accident.
func (s *Source) ensureSlot(ctx context.Context, conn *pgx.Conn, server server) error {
	found, err := s.inspectSlot(ctx, conn)
	if err != nil {
		return err
	}
	if err := found.requireOurs(s.config.Slot, server.database); err != nil {
		return err
	}
	if found.exists && !found.lost() {
		s.lossNoted = false
		return nil
	}
	missed, err := s.missesSlot(ctx, server)
	if err != nil {
		return err
	}
	if found.lost() || missed {
		if err := s.giveUpSlot(ctx, conn, found); err != nil {
			return err
		}
	}
	_, err = s.makeSlot(ctx, conn, server)
	return err
}

// missesSlot reports whether a slot that is not there has been there before. A
// cluster that an operator adopted under a running relay never had it.
func (s *Source) missesSlot(ctx context.Context, server server) (bool, error) {
	last := s.current.Load()
	switch {
	case s.created: // by an attempt of this process that came no further
		return false, nil
	case last != nil:
		return last.server.system == server.system, nil
	case s.served == nil:
		return false, nil
	}
	served, err := s.served(ctx)
	if err != nil {
		return false, fmt.Errorf("ask for the slot's past: %w", err)
	}
	return served, nil
}

// makeSlot announces a new slot and makes it. It reports false if somebody else
// made it meanwhile.
func (s *Source) makeSlot(ctx context.Context, conn *pgx.Conn, server server) (bool, error) {
	if err := s.announceSlot(ctx); err != nil {
		return false, err
	}
	begun := time.Now()
	s.log.Info("making the slot")
	created, err := createSlot(ctx, conn, s.config.Slot, server.version, s.config.SlotTimeout, s.awaits)
	if err != nil || !created {
		return false, err
	}
	s.created, s.lossNoted = true, false
	s.log.Info("slot created", zap.Duration(fieldElapsed, time.Since(begun)))
	return true, nil
}

// awaits tells what the making of the slot waits for.
func (s *Source) awaits(t *blocker.Transaction) {
	s.setProblem(&blockedError{t})
	s.log.Warn("slot creation waits for an open transaction", blockerFields(t)...)
}

// blockedError says what the making of the slot waits for.
type blockedError struct{ by *blocker.Transaction }

func (e *blockedError) Error() string {
	text := "slot creation waits for an open transaction: " + e.by.String()
	if e.by != nil && e.by.Since != nil {
		text += ", since " + e.by.Since.UTC().Format(time.DateTime) + " UTC"
	}
	return text
}

// Hint is a sentence that says what to do.
func (e *blockedError) Hint() string { return e.by.Hint() }

func blockerFields(t *blocker.Transaction) []zap.Field {
	fields := []zap.Field{zap.Stringer(fieldTransaction, t)}
	if t == nil {
		return fields
	}
	if t.Since != nil {
		fields = append(fields, zap.Time(fieldSince, t.Since.UTC()))
	}
	return append(fields, zap.String(fieldHint, t.Hint()))
}

func (s *Source) announceSlot(ctx context.Context) error {
	if s.announce == nil {
		return nil
	}
	if err := s.announce(ctx); err != nil {
		return fmt.Errorf("announce a new slot: %w", err)
	}
	return nil
}

// giveUpSlot makes room for a new slot, if the operator leaves that to the
// relay.
func (s *Source) giveUpSlot(ctx context.Context, conn *pgx.Conn, found slot) error {
	lost := found.lostError(s.config.Slot)
	if !s.lossNoted {
		s.lossNoted = true
		s.stats.losses.add(found.loss())
	}
	if s.config.SlotLost != SlotLostRecreate {
		return lost
	}
	s.log.Error("slot lost, a new one takes its place", zap.Error(lost))
	if !found.exists {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	return dropSlot(ctx, conn, s.config.Slot)
}

// firstSlotTry is how long the first try to make the slot waits: long enough
// on a quiet server, short enough to soon say what it waits for on another.
const firstSlotTry = 2 * time.Second

// createSlot makes the slot, which waits for every transaction that was open
// when it began. It tries for as long as ctx lasts and tells what it waits for.
// It reports false if somebody else made the slot meanwhile.
//
// The SQL function is used because it can be ended by a statement_timeout and
// by a cancel request; the replication command cannot.
func createSlot(ctx context.Context, conn *pgx.Conn, name string, version int, timeout time.Duration, waits func(*blocker.Transaction)) (bool, error) {
	create := "select pg_catalog.pg_create_logical_replication_slot($1, 'pgoutput', false, false)"
	if version >= versionFailoverSlots {
		create = "select pg_catalog.pg_create_logical_replication_slot($1, 'pgoutput', false, false, true)"
	}
	var waitsFor string
	for try := min(firstSlotTry, timeout); ; try = timeout {
		err := withStatementTimeout(ctx, conn, try, func() error {
			_, err := conn.Exec(ctx, create, name)
			return err
		})
		switch {
		case err == nil:
			return true, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case pgtext.SQLState(err) == codeDuplicateObject:
			return false, nil
		case pgtext.SQLState(err) != codeQueryCanceled:
			return false, explainCreate(ctx, conn, name, err)
		}
		found, err := blocker.Of(ctx, conn, 0)
		if err != nil {
			return false, err
		}
		if name := found.Name(); name != waitsFor {
			waitsFor = name
			waits(found)
		}
	}
}

func withStatementTimeout(ctx context.Context, conn *pgx.Conn, timeout time.Duration, use func() error) error {
	set := "select pg_catalog.set_config('statement_timeout', $1, false)"
	if _, err := conn.Exec(ctx, set, strconv.FormatInt(timeout.Milliseconds(), 10)); err != nil {
		return fmt.Errorf("set statement_timeout: %w", err)
	}
	err := use()
	if ctx.Err() != nil {
		return err
	}
	if _, resetErr := conn.Exec(ctx, set, "0"); resetErr != nil {
		return errors.Join(err, fmt.Errorf("reset statement_timeout: %w", resetErr))
	}
	return err
}

// explainCreate gives an error of the slot's creation its hint.
func explainCreate(ctx context.Context, conn *pgx.Conn, name string, err error) error {
	switch pgtext.SQLState(err) {
	case codePrivilege:
		return &OperatorError{
			kind: ErrPrivilege, err: err, text: fmt.Sprintf("create slot %q", name),
			hint: letReplicate(currentRole(ctx, conn)),
		}
	case codeAllSlotsUsed:
		return slotsUsed(ctx, conn, fmt.Errorf("create slot %q: %w", name, err))
	case codeObjectNotReady:
		return &OperatorError{
			kind: ErrServer, err: err, text: fmt.Sprintf("create slot %q", name),
			hint: "see wal_level and the server's log",
		}
	}
	return fmt.Errorf("create slot %q: %w", name, err)
}

// currentRole is the role of the session, quoted. Without an answer it is the
// one that connected, which another may have taken the place of.
func currentRole(ctx context.Context, conn *pgx.Conn) string {
	role := conn.Config().User
	if err := conn.QueryRow(ctx, "select current_user::text").Scan(&role); err != nil {
		role = conn.Config().User
	}
	return pgx.Identifier{role}.Sanitize()
}

// dropSlot drops a slot that nobody holds. One that is gone already is no error.
func dropSlot(ctx context.Context, conn *pgx.Conn, name string) error {
	_, err := conn.Exec(ctx, "select pg_catalog.pg_drop_replication_slot($1)", name)
	switch pgtext.SQLState(err) {
	case codeUndefinedObject:
		return nil
	case codeInUse:
		return fmt.Errorf("%w: drop slot %q: %w", errSlotBusy, name, err)
	case codePrivilege:
		return &OperatorError{
			kind: ErrPrivilege, err: err, text: fmt.Sprintf("drop slot %q", name),
			hint: letReplicate(currentRole(ctx, conn)),
		}
	}
	if err != nil {
		return fmt.Errorf("drop slot %q: %w", name, err)
	}
	return nil
}
