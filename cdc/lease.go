package cdc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// selectLease reads shared memory, no table. pg_snapshot_xmax uses up no
// transaction id.
const selectLease = `
	select coalesce(s.active_pid::text, ''), coalesce(s.confirmed_flush_lsn::text, '0/0'),
	       pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint,
	       pg_catalog.clock_timestamp()
	from pg_catalog.pg_replication_slots s
	where s.slot_name = $1`

// askLease asks whether the session holds the slot, and returns the slot's
// confirmed flush. It notes what else the server says: its clock, and its newest
// transaction id.
func (s *session) askLease(ctx context.Context, conn *pgx.Conn, slot string) (confirmed lsn, err error) {
	var pid, position string
	var xid int64
	var clock time.Time
	asked := time.Now()
	err = conn.QueryRow(ctx, selectLease, slot).Scan(&pid, &position, &xid, &clock)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, fmt.Errorf("%w: slot %q does not exist", errSlotTaken, slot)
	case err != nil:
		return 0, fmt.Errorf("ask for the holder of slot %q: %w", slot, err)
	case pid == "":
		return 0, fmt.Errorf("%w: nobody holds slot %q", errSlotTaken, slot)
	case pid != s.pid:
		return 0, fmt.Errorf("%w: slot %q is held by pid %s, ours was %s", errSlotTaken, slot, pid, s.pid)
	}
	s.word.held(asked)
	s.word.compare(asked, clock)
	s.newestXID.Store(uint64(xid))

	return parseLSN(position)
}
