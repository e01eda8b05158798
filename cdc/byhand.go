package cdc

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// What a person may do with the slot, on a Source without a session. Nothing is
// tried again: the person is there to see the error. A slot that is not ours is
// never touched, and one that somebody streams from is an [ErrSlotHeld].

// MakeSlot makes the slot ahead of the first Open, with the same checks, the
// same announcement and the same waiting for open transactions. It reports false
// if the slot is there already. A slot that is lost is an [ErrSlotLost].
func (s *Source) MakeSlot(ctx context.Context) (made bool, err error) {
	err = s.withSlot(ctx, s.examine, func(conn *pgx.Conn, server server, found slot) (err error) {
		switch {
		case found.lost():
			return found.lostError(s.config.Slot)
		case found.exists:
			return nil
		}
		made, err = s.makeSlot(ctx, conn, server)
		return err
	})
	return made, err
}

// RemakeSlot drops the slot, if it is there, and makes it anew. What the old one
// would have shown is in the table only: the announcement, which comes before
// anything is dropped, is how the next session knows.
func (s *Source) RemakeSlot(ctx context.Context) error {
	return s.withSlot(ctx, s.examine, func(conn *pgx.Conn, server server, found slot) error {
		if err := s.dropAnnounced(ctx, conn, found); err != nil {
			return err
		}
		if _, err := s.makeSlot(ctx, conn, server); err != nil {
			return fmt.Errorf("the old slot is dropped, the new one is left to the next start of the relay: %w", err)
		}
		return nil
	})
}

// CheckRemake returns what would keep RemakeSlot from its work, and whether the
// slot is there. It changes nothing.
func (s *Source) CheckRemake(ctx context.Context) (exists bool, err error) {
	return s.checkFree(ctx, s.examine)
}

// DropSlot drops the slot for good. It reports false if there was none. A relay
// that starts later makes a new one, and takes from the table what that cannot
// show.
func (s *Source) DropSlot(ctx context.Context) (dropped bool, err error) {
	err = s.withSlot(ctx, s.lookAtServer, func(conn *pgx.Conn, _ server, found slot) error {
		dropped = found.exists
		return s.dropAnnounced(ctx, conn, found)
	})
	return dropped && err == nil, err
}

// CheckDrop returns what would keep DropSlot from its work, and whether the slot
// is there. It changes nothing.
func (s *Source) CheckDrop(ctx context.Context) (exists bool, err error) {
	return s.checkFree(ctx, s.lookAtServer)
}

// DropPublication drops the publication. It reports false if there was none.
// Slots that are made before the next one of this name are of no use up to
// Postgres 17.
func (s *Source) DropPublication(ctx context.Context) (dropped bool, err error) {
	conn, err := s.connectByHand(ctx)
	if err != nil {
		return false, err
	}
	defer hangUp(conn)
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	name := pgx.Identifier{s.config.Publication}.Sanitize()
	_, err = conn.Exec(ctx, "drop publication "+name)
	switch pgtext.SQLState(err) {
	case codeUndefinedObject:
		return false, nil
	case codePrivilege:
		return false, &OperatorError{
			kind: ErrPrivilege, err: err, text: "drop publication " + name,
			hint: "as its owner or a superuser: drop publication " + name,
		}
	}
	if err != nil {
		return false, fmt.Errorf("drop publication %s: %w", name, err)
	}
	return true, nil
}

// withSlot looks at the server and at the slot, which must be ours if it is
// there, and acts on what was found.
func (s *Source) withSlot(ctx context.Context, look func(context.Context, *pgx.Conn) (server, error), act func(*pgx.Conn, server, slot) error) error {
	conn, err := s.connectByHand(ctx)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	server, err := look(ctx, conn)
	if err != nil {
		return err
	}
	found, err := s.inspectSlot(ctx, conn)
	if err != nil {
		return err
	}
	if err := found.requireOurs(s.config.Slot, server.database); err != nil {
		return err
	}
	return act(conn, server, found)
}

// connectByHand connects to the primary, of several servers to the one that was
// promoted last: a person who drops something must not do it on an old one.
func (s *Source) connectByHand(ctx context.Context) (*pgx.Conn, error) {
	if !s.hosts.known() {
		s.survey(ctx)
	}
	return s.connect(ctx, "for the slot", s.direct)
}

// lookAtServer makes sure that the server takes writes. More is not needed to
// drop something.
func (s *Source) lookAtServer(ctx context.Context, conn *pgx.Conn) (server, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	return inspectServer(ctx, conn)
}

func (s *Source) checkFree(ctx context.Context, look func(context.Context, *pgx.Conn) (server, error)) (exists bool, err error) {
	err = s.withSlot(ctx, look, func(_ *pgx.Conn, _ server, found slot) error {
		exists = found.exists
		return found.heldError(s.config.Slot)
	})
	return exists, err
}

// dropAnnounced drops the slot, if it is there. The announcement comes first: who
// may not make it drops nothing, and whoever makes the next slot, also by SQL,
// has the messages in between taken from the table.
func (s *Source) dropAnnounced(ctx context.Context, conn *pgx.Conn, found slot) error {
	if err := found.heldError(s.config.Slot); err != nil {
		return err
	}
	if err := s.announceSlot(ctx); err != nil {
		return err
	}
	if !found.exists {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	err := dropSlot(ctx, conn, s.config.Slot)
	if errors.Is(err, errSlotBusy) { // somebody was faster
		return &OperatorError{kind: ErrSlotHeld, err: err, text: ErrSlotHeld.Error(), hint: hintHeld}
	}
	return err
}
