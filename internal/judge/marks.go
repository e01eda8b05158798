package judge

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// marksAtOnce bounds one look for marks.
	marksAtOnce = 5000
	// markPause is how long an answer is left alone: nearly all marks are there
	// by then, and one look is enough.
	markPause = 3 * time.Second
)

// markWanted is an answer whose mark is looked for.
type markWanted struct {
	name     name
	key      string
	answered moment
}

// mayLose is what may take an answer away from a relay before it is marked:
// everything but the way of statements, which a relay waits for.
const mayLose = (marking | requests | machine) &^ statements

// wantedMarks are answers that are old enough to be marked.
func (l *ledger) wantedMarks(now moment) (wanted []markWanted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var rest []name
	for i, n := range l.marks {
		r := l.at(n)
		switch {
		case r.state != committed && r.state != open, r.told:
		case len(wanted) == marksAtOnce:
			l.marks = append(rest, l.marks[i:]...)
			return wanted
		case now-r.answered < milliseconds(markPause), r.state == open:
			rest = append(rest, n)
		default:
			wanted = append(wanted, markWanted{n, l.key(n), r.answered})
		}
	}
	l.marks = rest
	return wanted
}

// judgeMarks tells of marks that should be there by now. An answer that a relay
// may have lost is none: the request is repeated, and the next answer counts.
func (l *ledger) judgeMarks(wanted []markWanted, marked map[string]time.Time, now moment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	calm := l.history.calmSince(marking, now)
	for _, w := range wanted {
		r := l.at(w.name)
		if _, ok := marked[w.key]; ok || r.told || r.state != committed {
			continue
		}
		if _, lost := l.history.first(mayLose, w.answered-aroundAnswer, now); lost {
			continue
		}
		if l.exceeded(markPatient, max(w.answered, calm+l.scaled(recovery)), now) {
			r.told = true
			l.violate("mark", w.key, "not marked at %v: the queue said yes at %v, and Postgres is well since %v", now, w.answered, calm)
			continue
		}
		l.marks = append(l.marks, w.name)
	}
}

// sqlMarked needs track_commit_timestamp: dispatched_at is when the transaction
// began.
const sqlMarked = `
select m.key, pg_xact_commit_timestamp(d.xmin) from outbox.messages m join outbox.dispatched d on d.message_id = m.id
where m.key = any ($1::text[])`

// marksOf says when keys were marked, for those that were.
func marksOf(ctx context.Context, conn *pgx.Conn, keys []string) (map[string]time.Time, error) {
	marked := make(map[string]time.Time, len(keys))
	rows, err := conn.Query(ctx, sqlMarked, keys)
	if err != nil {
		return nil, err
	}
	var key string
	var at *time.Time // null of a frozen row
	_, err = pgx.ForEachRow(rows, []any{&key, &at}, func() error {
		if marked[key] = time.Now(); at != nil {
			marked[key] = *at
		}
		return nil
	})
	return marked, err
}

// watchMarks looks for the marks of answers and for the causes of repeats.
func (r *run) watchMarks(ctx context.Context, conn *pgx.Conn) error {
	now := r.report.moment(time.Now())
	wanted, repeats := r.ledger.wantedMarks(now), r.ledger.takeRepeats()
	keys := make([]string, 0, len(wanted)+len(repeats))
	for _, w := range wanted {
		keys = append(keys, w.key)
	}
	for _, p := range repeats {
		keys = append(keys, p.key)
	}
	marked, err := marksOf(ctx, conn, keys)
	if err != nil { // the next look takes them
		r.ledger.mu.Lock()
		defer r.ledger.mu.Unlock()
		for _, w := range wanted {
			r.ledger.marks = append(r.ledger.marks, w.name)
		}
		r.ledger.repeats = slices.Concat(repeats, r.ledger.repeats)
		return err
	}
	r.ledger.judgeMarks(wanted, marked, now)
	r.ledger.explainRepeats(repeats, marked)
	return nil
}
