package verify

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// lookAgain looks at what was in doubt once more, when the relay must have been
// done with it. If it is not, messages without outcome stay in flight.
func (v *verifier) lookAgain(ctx context.Context) error {
	if len(v.late)+len(v.wrong) == 0 {
		return nil
	}
	passed, err := v.pass(ctx)
	if err != nil {
		return err
	}
	if passed {
		err = v.recheck(ctx, v.late, true)
	} else {
		v.report.Late += int64(len(v.late))
	}
	if err != nil {
		return err
	}
	return v.recheck(ctx, v.wrong, false)
}

// recheck adds to the report what is still wrong with messages. One whose outcomes
// somebody has removed since the first look is not unaccounted before the relay
// had a chance.
func (v *verifier) recheck(ctx context.Context, ids []int64, passed bool) error {
	faults, err := v.judge(ctx, ids)
	if err != nil {
		return err
	}
	r := v.report
	for i := range faults {
		kind := faults[i].Kind
		if kind == Unaccounted {
			if !passed {
				continue
			}
			r.Unaccounted++
			r.InFlight--
		}
		r.Faults[kind]++
		if len(r.Examples) < v.cfg.Examples {
			r.Examples = append(r.Examples, faults[i])
		}
	}
	return nil
}

// pass waits until a relay must have been done with what was visible before the
// call. It returns false if none is at work, or if that takes longer than
// Config.Wait.
func (v *verifier) pass(ctx context.Context) (bool, error) {
	deadline := time.Now().Add(v.cfg.Wait)
	if err := v.readMover(ctx); err != nil {
		return false, err
	}
	passed := v.passedByPolling
	if v.mover.Poll == nil {
		var position string
		if err := v.conn.QueryRow(ctx, `select pg_current_wal_insert_lsn()::text`).Scan(&position); err != nil {
			return false, err
		}
		passed = func(ctx context.Context) (bool, error) { return v.confirmed(ctx, position) }
	}
	for {
		if !waits.Sleep(ctx, v.cfg.pause) {
			return false, context.Cause(ctx)
		}
		done, err := passed(ctx)
		if err != nil || done {
			return done, err
		}
		if err := v.readMover(ctx); err != nil {
			return false, err
		}
		if !v.mover.AtWork() || time.Now().After(deadline) {
			return false, nil
		}
	}
}

func (v *verifier) readMover(ctx context.Context) error {
	return v.snapshot(ctx, func(tx pgx.Tx) (err error) {
		v.mover, err = status.ReadMover(ctx, tx, v.cfg.Schema, v.cfg.Slot)
		return err
	})
}

// A slot that was just made has confirmed what it never showed: the relay takes
// that from the table first, and records that it did.
const sqlConfirmed = `
select coalesce((select confirmed_flush_lsn >= $2::pg_lsn from pg_replication_slots where slot_name = $1), false)
	and exists (select from outbox.relays where slot = $1 and reconciled_at is not null)`

// confirmed reports whether the slot has confirmed a position: everything that the
// stream shows of what was committed before has an outcome.
func (v *verifier) confirmed(ctx context.Context, position string) (passed bool, err error) {
	err = v.conn.QueryRow(ctx, v.in(sqlConfirmed), v.cfg.Slot, position).Scan(&passed)
	return passed, err
}

// pollPause is the wait between two looks at what a relay that polls has not come
// to: it reads the table many times a second, and what it has read has an outcome
// within a few seconds, or is deferred.
const pollPause = 10 * time.Second

// passedByPolling reports whether a relay that polls must have been done with what
// is in doubt: none of that got an outcome for a while, and no transaction is open
// that has written to the table, for which messages with an ordering key wait.
func (v *verifier) passedByPolling(ctx context.Context) (bool, error) {
	before, err := v.judge(ctx, v.late)
	if err != nil {
		return false, err
	}
	if !waits.Sleep(ctx, max(v.cfg.pause, min(pollPause, v.cfg.Wait/3))) {
		return false, context.Cause(ctx)
	}
	after, err := v.judge(ctx, v.late)
	if err != nil || len(after) < len(before) {
		return false, err
	}
	var open bool
	err = v.conn.QueryRow(ctx, sqlWritersOpen, v.cfg.Schema).Scan(&open)
	return !open, err
}

const sqlWritersOpen = `
select exists (
	select from pg_locks l join pg_class t on t.oid = l.relation join pg_namespace n on n.oid = t.relnamespace
	where l.mode = 'RowExclusiveLock' and n.nspname = $1 and t.relname = 'messages'
		and l.database = (select oid from pg_database where datname = current_database())
		and l.pid is distinct from pg_backend_pid())`

// One message at a time by its primary key, in each of the tables.
var sqlDoubts = judged("message_id = any ($1::bigint[])", "0") + `
select id, kind, array_remove(array[case when s then 'dispatched' end, case when x then 'dead letter' end,
	case when d then 'deferred' end, case when w then 'withdrawn' end], null) from judged where kind <> 'young' order by id`

// judge says what is wrong with messages, of which most may be all right by now.
func (v *verifier) judge(ctx context.Context, ids []int64) (faults []Fault, err error) {
	for chunk := range slices.Chunk(ids, v.cfg.Batch) {
		err := v.snapshot(ctx, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, v.in(sqlDoubts), chunk)
			if err != nil {
				return err
			}
			found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Fault])
			faults = append(faults, found...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return faults, nil
}
