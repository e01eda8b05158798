package judge

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// casesTold is how many messages have their history told in a run.
	casesTold = 12
	// around is how much of what went wrong before and after is told.
	around = 3 * time.Second
	// linesTold bounds one history.
	linesTold = 60
)

// event is a line of a history.
type event struct {
	at   moment
	text string
}

// tellCases tells the histories of the messages whose promise was broken.
func (r *run) tellCases(ctx context.Context) {
	r.ledger.mu.Lock()
	keys := r.ledger.cases
	r.ledger.cases = nil
	r.ledger.mu.Unlock()
	for _, key := range keys {
		if r.told >= casesTold || slices.Contains(r.toldKeys, key) {
			continue
		}
		r.told++
		r.toldKeys = append(r.toldKeys, key)
		r.tellHistory(ctx, key)
	}
}

// tellHistory tells what happened to a message, and around it.
func (r *run) tellHistory(ctx context.Context, key string) {
	events := slices.Concat(r.ledger.events(key), r.requestsOf(key), r.rowsOf(ctx, key))
	if len(events) == 0 {
		return
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	from, to := events[0].at-milliseconds(around), events[len(events)-1].at+milliseconds(around)
	for _, d := range r.history.between(from, to) {
		events = append(events, event{d.begin, "  " + d.String()})
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	r.cfg.Note(fmt.Sprintf("history of %s, seed %d:", key, r.cfg.Seed))
	for i, e := range events {
		if i == linesTold {
			r.cfg.Note(fmt.Sprintf("  ... and %d more", len(events)-i))
			break
		}
		r.cfg.Note(fmt.Sprintf("  %9v %s", e.at, e.text))
	}
}

// events are what the ledger knows of a message.
func (l *ledger) events(key string) (events []event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, r := l.find(key)
	if r == nil {
		return nil
	}
	if r.ended > 0 {
		states := map[state]string{committed: "committed", rolledBack: "rolled back", deleted: "committed, deleted later", withdrawn: "committed, withdrawn later"}
		events = append(events, event{r.ended, fmt.Sprintf("%s: queue %s, lane %d", states[r.state], queues[r.queue], r.lane)})
	}
	if r.due > 0 {
		events = append(events, event{r.due, "due"})
	}
	if r.gone > 0 {
		events = append(events, event{r.gone, "withdrawn"})
	}
	return events
}

// requestsOf are the requests for a key, as far as the journal has them.
func (r *run) requestsOf(key string) (events []event) {
	for _, e := range r.queue.Journal().Entries(0, 0) {
		if e.Key == key {
			events = append(events, event{r.report.moment(e.Time), fmt.Sprintf("request %d from %s: status %d, %s, fault %d %v",
				e.Number, e.Connection, e.Status, e.Outcome, e.Fault, e.MessageIDs)})
		}
	}
	return events
}

const sqlRows = `
select m.created_at, format('in messages: id %s, xmin %s', m.id, m.xmin) from outbox.messages m where m.key = $1
union all
select d.dispatched_at, format('marked: attempts %s', d.attempts)
	from outbox.dispatched d join outbox.messages m on m.id = d.message_id where m.key = $1
union all
select d.deferred_at, format('deferred: %s', d) from outbox.deferred d join outbox.messages m on m.id = d.message_id where m.key = $1
union all
select x.died_at, format('dead letter: %s', x) from outbox.dead_letters x join outbox.messages m on m.id = x.message_id where m.key = $1`

// rowsOf are what the tables have of a message now.
func (r *run) rowsOf(ctx context.Context, key string) (events []event) {
	err := r.ask(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, sqlRows, key)
		if err != nil {
			return err
		}
		var at time.Time
		var text string
		_, err = pgx.ForEachRow(rows, []any{&at, &text}, func() error {
			events = append(events, event{r.report.moment(at), text})
			return nil
		})
		return err
	})
	if err != nil {
		r.cfg.Note(fmt.Sprintf("  the tables cannot be read: %v", err))
	}
	return events
}
