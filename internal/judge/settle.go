package judge

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// sight is what the tables and the slot show.
type sight struct {
	messages, unmarked, deferred, dead, strangers, both, duplicates, behind, retained int64
}

// look reads it. Strangers are dead letters that nobody scripted.
func look(ctx context.Context, conn *pgx.Conn) (s sight, err error) {
	err = conn.QueryRow(ctx, `
		select
			(select count(*) from outbox.messages),
			(select count(*) from outbox.messages m
				where not exists (select from outbox.dispatched d where d.message_id = m.id)
				and not exists (select from outbox.dead_letters x where x.message_id = m.id)),
			(select count(*) from outbox.deferred),
			(select count(*) from outbox.dead_letters),
			(select count(*) from outbox.dead_letters x left join outbox.messages m on m.id = x.message_id
				where m.key is null or m.key not like $2),
			(select count(*) from outbox.dead_letters join outbox.dispatched using (message_id)),
			(select count(*) from outbox.dispatched where possible_duplicate),
			coalesce((select pg_current_wal_lsn() - confirmed_flush_lsn from pg_replication_slots where slot_name = $1), -1)::bigint,
			coalesce((select pg_current_wal_lsn() - restart_lsn from pg_replication_slots where slot_name = $1), -1)::bigint`,
		slot, poisonPrefix+"%").Scan(&s.messages, &s.unmarked, &s.deferred, &s.dead, &s.strangers, &s.both, &s.duplicates, &s.behind, &s.retained)
	return s, err
}

// String is for the log.
func (s sight) String() string {
	return fmt.Sprintf("messages %d, without outcome %d, deferred %d, dead %d, with two outcomes %d, slot %d bytes behind",
		s.messages, s.unmarked, s.deferred, s.dead, s.both, s.behind)
}

// slotDistance is how far a slot that is up to date may be behind.
const slotDistance = 1 << 20

// settle waits until everything has come to its end, and judges it.
func (r *run) settle(ctx context.Context) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Patience)
	defer cancel()
	var last sight
	for {
		var err error
		last, err = r.unsettled(ctx, last)
		if err == nil {
			break
		}
		if !wait(ctx, 200*time.Millisecond) {
			r.report.violate("end", "after %v: %v; %v", r.cfg.Patience, err, last)
			r.explain()
			break
		}
		r.relays.measure()
	}
	r.report.Settled = time.Since(begun)
	r.checkOrder()
	r.judgeTables(last)
}

// unsettled says what is still missing.
func (r *run) unsettled(ctx context.Context, before sight) (sight, error) {
	r.readJournal()
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		return before, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	s, err := look(ctx, conn)
	if err != nil {
		return before, err
	}
	missing, some := r.ledger.missing()
	switch {
	case missing > 0:
		return s, fmt.Errorf("%d committed keys are not accepted, such as %s", missing, strings.Join(some, " "))
	case s.unmarked > 0:
		return s, fmt.Errorf("%d messages have no outcome", s.unmarked)
	case s.deferred > 0:
		return s, fmt.Errorf("%d rows are deferred", s.deferred)
	case s.behind < 0 || s.behind > slotDistance:
		return s, fmt.Errorf("the slot is %d bytes behind", s.behind)
	}
	return s, nil
}

// judgeTables compares the last sight with what was committed.
func (r *run) judgeTables(s sight) {
	all, poison, gone := r.ledger.committed()
	r.report.DeadLetters = s.dead
	r.report.Withdrawn = gone
	// A deletion whose answer was lost may have happened or not.
	if s.messages < all || s.messages > all+gone {
		r.report.violate("judge", "%d messages in the table, %d committed and %d withdrawn", s.messages, all, gone)
	}
	if s.dead != poison || s.strangers != 0 {
		r.report.violate("dead letters", "%d dead letters, of which %d nobody scripted; %d were", s.dead, s.strangers, poison)
	}
	if s.both != 0 {
		r.report.violate("outcome", "%d messages are dispatched and dead", s.both)
	}
	if s.duplicates != 0 {
		r.report.violate("duplicates", "%d messages are marked as possible duplicates", s.duplicates)
	}
}

// explain tells about some messages without an outcome.
func (r *run) explain() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, `
		select format('%s id %s xmin %s queue %s lane %s created %s, deferred: %s', m.key, m.id, m.xmin, m.queue, m.ordering_key, m.created_at, d)
		from outbox.messages m left join outbox.deferred d on d.message_id = m.id
		where not exists (select from outbox.dispatched x where x.message_id = m.id)
		and not exists (select from outbox.dead_letters x where x.message_id = m.id)
		order by m.id limit 20`)
	if err != nil {
		return
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return
	}
	for _, text := range texts {
		r.cfg.Note("  no outcome: " + text)
	}
}
