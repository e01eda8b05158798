package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

const (
	// skippingServer is the first version that passes over what was written
	// while the publication did not exist. Those before end the stream there,
	// and every stream after it.
	skippingServer = 180000
	// peekTimeout bounds a look into the WAL. A relay that wants the slot waits
	// for so long.
	peekTimeout = 5 * time.Second
	// peekChanges bounds what the server puts aside for the answer. What keeps a
	// stream from going on is near: what came before it was read and confirmed.
	peekChanges = 1000
)

// slotAge looks whether the slot is older than its publication, which was
// dropped and made again then. The catalog does not tell: what counts is the
// publication as of each record that is still to be read. So the server is asked
// to decode the next changes, which moves nothing.
func slotAge(ctx context.Context, p *patient) (finding, error) {
	switch s := p.slot; {
	case s == nil:
		return skip("there is no slot yet"), nil
	case p.version >= skippingServer:
		return pass("this server passes over what was written before the publication"), nil
	case s.active:
		return pass("in use: somebody can read it"), nil
	case p.cfg.LeaveSlot:
		return skip("a relay may want the slot; `outbox-relay doctor` looks into it"), nil
	}
	err := p.peek(ctx)
	if err == nil {
		return pass("the next changes can be read"), nil
	}
	switch pgtext.SQLState(err) {
	case "55006": // taken meanwhile
		return pass("in use: somebody can read it"), nil
	case "57014":
		return pass(fmt.Sprintf("no trouble in what can be read in %v", peekTimeout)), nil
	case "42704":
		return p.slotTooOld(err), nil
	}
	return finding{}, err
}

// peek decodes the next changes of the slot and throws them away.
func (p *patient) peek(ctx context.Context) error {
	return pgx.BeginFunc(ctx, p.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("set local statement_timeout = %d", peekTimeout.Milliseconds())); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			select count(*) from pg_logical_slot_peek_binary_changes($1, null, $2,
				'proto_version', '1', 'publication_names', $3)`, p.cfg.Slot, peekChanges, ident(p.cfg.Publication))
		return err
	})
}

func (p *patient) slotTooOld(err error) finding {
	return finding{
		status: Fail, observed: oneLine(err),
		message: "slot " + ident(p.cfg.Slot) + " is older than publication " + ident(p.cfg.Publication) + ", which was dropped and made " +
			"again: this server cannot read past what was written in between. Nothing is lost: the messages are in the table",
		remedy: "stop the relay and run `outbox-relay slot recreate --yes`; or the statements, as a role that may replicate. " +
			"The next start of the relay takes from the table what the WAL did not show",
		sql: script(p.remakeSlot()...),
	}
}
