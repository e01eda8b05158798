package judge

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// slotDistance is how far in bytes a slot may be behind when nothing is written.
const slotDistance = 1 << 20

// settle waits until everything has come to its end, and judges it.
func (r *run) settle(ctx context.Context) {
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, r.scaled(r.cfg.Patience))
	defer cancel()
	for {
		_ = r.ask(limited, r.tendDeadLetters)
		r.watcher.look(limited)
		err := r.ask(limited, r.unsettled)
		if err == nil {
			break
		}
		if !waits.Sleep(limited, watchPause) {
			r.report.violate("end", "after %v: %v", time.Since(begun).Round(time.Second), err)
			r.tellMissing(ctx)
			break
		}
	}
	r.report.Settled = time.Since(begun)
	r.readJournal()
	r.ledger.checkOrder()
	if err := r.judgeTables(ctx); err != nil {
		r.report.violate("judge", "%v", err)
	}
	r.tellCases(ctx)
}

// sqlUnsettled counts what has no outcome yet, and how far the slot is behind.
const sqlUnsettled = `
select
	(select count(*) from outbox.messages m
		where not exists (select from outbox.dispatched d where d.message_id = m.id)
		and not exists (select from outbox.dead_letters x where x.message_id = m.id)),
	(select count(*) from outbox.deferred),
	coalesce((select pg_current_wal_lsn() - confirmed_flush_lsn from pg_replication_slots where slot_name = $1), -1)::bigint`

// unsettled says what is still missing.
func (r *run) unsettled(ctx context.Context, conn *pgx.Conn) error {
	if missing, some := r.ledger.missing(); missing > 0 {
		return fmt.Errorf("%d committed keys are not accepted, such as %s", missing, strings.Join(some, " "))
	}
	var unmarked, deferred, behind int64
	if err := conn.QueryRow(ctx, sqlUnsettled, slot).Scan(&unmarked, &deferred, &behind); err != nil {
		return err
	}
	switch {
	case unmarked > 0:
		return fmt.Errorf("%d messages have no outcome", unmarked)
	case deferred > 0:
		return fmt.Errorf("%d rows are deferred", deferred)
	case behind < 0 || behind > slotDistance:
		return fmt.Errorf("the slot is %d bytes behind", behind)
	}
	return nil
}

// tellMissing tells the histories of some messages that did not arrive, or were
// not marked.
func (r *run) tellMissing(ctx context.Context) {
	_, keys := r.ledger.missing()
	if len(keys) == 0 {
		err := r.ask(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			rows, err := conn.Query(ctx, `select m.key from outbox.messages m
				where not exists (select from outbox.dispatched d where d.message_id = m.id)
				and not exists (select from outbox.dead_letters x where x.message_id = m.id) order by m.id limit 3`)
			if err != nil {
				return err
			}
			keys, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
		if err != nil {
			r.cfg.Note(err.Error())
		}
	}
	for _, key := range keys[:min(3, len(keys))] {
		r.tellHistory(ctx, key)
	}
}
