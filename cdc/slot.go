package cdc

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// slot is a row of pg_replication_slots, as far as we look at it.
type slot struct {
	exists    bool
	kind      string // logical or physical
	plugin    string
	database  string
	temporary bool
	holder    string // pid of the backend that streams from it; empty if free
	walStatus string
	reason    string // why it was invalidated; empty on versions that do not say
	confirmed string // confirmed_flush_lsn
	failover  bool   // made to go along with a failover; false on versions that do not know that
}

// selectSlot reads shared memory, no table. Columns that older versions lack
// are read through JSON.
const selectSlot = `
	select s.slot_type, coalesce(s.plugin, ''), coalesce(s.database, ''), s.temporary,
	       coalesce(s.active_pid::text, ''), coalesce(s.wal_status, ''),
	       coalesce(pg_catalog.to_jsonb(s) ->> 'invalidation_reason', ''),
	       coalesce(s.confirmed_flush_lsn::text, ''),
	       coalesce((pg_catalog.to_jsonb(s) ->> 'failover')::bool, false)
	from pg_catalog.pg_replication_slots s
	where s.slot_name = $1`

func inspectSlot(ctx context.Context, conn *pgx.Conn, name string) (slot, error) {
	s := slot{exists: true}
	err := conn.QueryRow(ctx, selectSlot, name).Scan(
		&s.kind, &s.plugin, &s.database, &s.temporary, &s.holder, &s.walStatus, &s.reason, &s.confirmed, &s.failover)
	if errors.Is(err, pgx.ErrNoRows) {
		return slot{}, nil
	}
	if err != nil {
		return slot{}, fmt.Errorf("inspect slot %q: %w", name, err)
	}
	return s, nil
}

// lost reports whether WAL that the slot needs is gone for good. The texts of
// errors differ from version to version; these two columns do not lie.
func (s slot) lost() bool {
	return s.walStatus == "lost" || s.reason != ""
}

// requireOurs refuses a slot that was made for something else. A slot of the
// right kind is ours by its name alone, and so is one that does not exist yet.
func (s slot) requireOurs(name, database string) error {
	foreign := func(what string) error {
		return &OperatorError{
			kind: ErrSlotForeign,
			text: fmt.Sprintf("slot %q %s", name, what),
			hint: "the relay does not touch it; choose another name for the slot, or drop the slot with pg_drop_replication_slot if nobody needs it",
		}
	}
	switch {
	case !s.exists:
		return nil
	case s.kind != "logical":
		return foreign("is a " + s.kind + " slot, needs a logical one")
	case s.plugin == "" && s.holder != "":
		return nil // somebody is making it: the server knows its plugin a moment later
	case s.plugin != "pgoutput":
		return foreign(fmt.Sprintf("uses output plugin %q, needs %q", s.plugin, "pgoutput"))
	case s.database != database:
		return foreign(fmt.Sprintf("belongs to database %q, the relay's is %q", s.database, database))
	case s.temporary:
		return foreign("is temporary and ends with the session that made it")
	}
	return nil
}

// heldError says who has a slot that has to be free; nil if nobody has.
func (s slot) heldError(name string) error {
	if s.holder == "" {
		return nil
	}
	return &OperatorError{kind: ErrSlotHeld, text: fmt.Sprintf("slot %q is held by pid %s", name, s.holder), hint: hintHeld}
}

const hintHeld = "stop the relay that streams from it, and every standby that would take over; then do it again"

// lostError says that messages are only in the table any more.
func (s slot) lostError(name string) error {
	text := fmt.Sprintf("slot %q is gone: somebody dropped it, or this server never had it", name)
	cure := "run `outbox-relay slot create`"
	if s.exists {
		text = fmt.Sprintf("slot %q is lost: the server has removed WAL that it needed", name)
		cure = "run `outbox-relay slot recreate --yes`"
	}
	if s.reason != "" {
		text += " (" + s.reason + ")"
	}
	return &OperatorError{
		kind: ErrSlotLost,
		text: text + "; the messages are safe in the table",
		hint: cure + ", or leave it to the relay with SLOT_LOST=recreate; it makes a new slot and takes the messages from the table",
	}
}
