package judge

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// record is what the tables have of a message in the end.
type record struct {
	key                     string
	marked, duplicate, dead bool
	discarded               bool
}

const sqlRecords = `
select m.key, d.message_id is not null, coalesce(d.possible_duplicate, false), x.message_id is not null,
	coalesce(x.reason = 'discarded', false)
from outbox.messages m
left join outbox.dispatched d on d.message_id = m.id
left join outbox.dead_letters x on x.message_id = m.id`

// tablesTimeout bounds the last look at the tables.
const tablesTimeout = 2 * time.Minute

// judgeTables compares every row of the tables with the ledger.
func (r *run) judgeTables(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tablesTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, sqlRecords)
	if err != nil {
		return fmt.Errorf("read the tables: %w", err)
	}
	var rec record
	var found int64
	_, err = pgx.ForEachRow(rows, []any{&rec.key, &rec.marked, &rec.duplicate, &rec.dead, &rec.discarded}, func() error {
		found++
		r.ledger.judgeRecord(&rec)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the tables: %w", err)
	}
	// A deletion whose answer was lost may have happened or not.
	if least, most := r.ledger.expected(); found < least || found > most {
		r.report.violate("judge", "%d messages in the table, %d to %d are known", found, least, most)
	}
	return nil
}

// judgeRecord compares the last state of a message with what became of it.
func (l *ledger) judgeRecord(rec *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, r := l.find(rec.key)
	if r == nil {
		l.report.violate("judge", "%q is in the table and was never written", rec.key)
		return
	}
	if rec.dead {
		l.report.count(&l.report.DeadLetters)
	}
	// An answer may have been lost: what says discarded, was.
	aside := l.sick(r) || r.discarded || rec.discarded
	switch {
	case r.state == rolledBack || r.state == withdrawn:
		l.violate("judge", rec.key, "in the table, and should not be")
	case rec.marked && rec.dead:
		l.violate("outcome", rec.key, "dispatched and dead")
	case rec.marked && r.accepted == 0:
		l.violate("outcome", rec.key, "marked and never accepted")
	case rec.dead && !aside:
		l.violate("dead letters", rec.key, "dead in the end, and its queue would take it")
	case aside && !rec.dead:
		l.violate("dead letters", rec.key, "not among the dead letters in the end, and its queue refuses it")
	case !rec.marked && !rec.dead:
		l.violate("outcome", rec.key, "without outcome")
	case rec.duplicate:
		l.violate("duplicates", rec.key, "marked as a possible duplicate, within the window of its key")
	}
}

// expected is how many messages the table may have.
func (l *ledger) expected() (least, most int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.writers {
		for n := range l.writers[w] {
			switch l.writers[w][n].state {
			case committed:
				least++
				most++
			case deleted:
				most++
			}
		}
	}
	return least, most
}
