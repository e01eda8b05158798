package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// starts is what the relay's row says of the starts so far, for the crash-loop
// guard.
type starts struct {
	unclean int   // starts in a row that count, with this one
	suspect int64 // the message that was written down last
	deaths  int   // starts in a row with it; 0: there is none
}

// countStart raises the number of starts, if this is one, and returns the record;
// ours is false when another relay has taken over.
func (s *store) countStart(ctx context.Context, epoch int64, start bool) (found starts, ours bool, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, s.sql.countStart, s.slot, epoch, start).Scan(&found.unclean, &found.suspect, &found.deaths)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return starts{}, false, nil
	}
	if err != nil {
		return starts{}, false, fmt.Errorf("count the start: %w", err)
	}
	return found, true, nil
}

// writeDown records a suspect.
func (s *store) writeDown(ctx context.Context, epoch, id int64, deaths int) (ours bool, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, s.sql.writeDown, s.slot, epoch, id, deaths)
		ours = tag.RowsAffected() == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("write message %d down: %w", id, err)
	}
	return ours, nil
}

// acquit makes the starts so far count no more; ours is false when another relay
// has taken over.
func (s *store) acquit(ctx context.Context, epoch int64) (ours bool, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, s.sql.acquit, s.slot, epoch)
		ours = tag.RowsAffected() == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("acquit the start: %w", err)
	}
	return ours, nil
}

// redeem takes one start off those that count, if another relay has taken over
// since the epoch.
func (s *store) redeem(ctx context.Context, epoch int64) (done bool, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, s.sql.redeem, s.slot, epoch)
		done = tag.RowsAffected() == 1
		return err
	})
	return done, err
}

// Each locks the slot's row of relays, all but the last but one under our epoch
// only.
const sqlCountStart = `
update outbox.relays set unclean_starts = unclean_starts + $3::bool::int, updated_at = now()
where slot = $1 and epoch = $2
returning unclean_starts, coalesce(suspect, 0), coalesce(suspect_attempts, 0)`

// Has to outlive the relay, not the server: nothing waits for the disk.
const sqlWriteDown = `
with fast as materialized (select set_config('synchronous_commit', 'off', true))
update outbox.relays set suspect = $3, suspect_attempts = $4 from fast
where slot = $1 and epoch = $2`

const sqlRedeem = `
update outbox.relays set unclean_starts = greatest(unclean_starts - 1, 0) where slot = $1 and epoch > $2`

const sqlAcquit = `
update outbox.relays set unclean_starts = 0, suspect = null, suspect_attempts = null
where slot = $1 and epoch = $2`
