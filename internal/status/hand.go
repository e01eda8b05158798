package status

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/paused"
)

// Pause is a queue that somebody has paused.
type Pause struct {
	Queue string `json:"queue"`
	paused.Note
}

// stoppedBound is how many queues are listed that somebody has paused.
const stoppedBound = 100

// Queues have few rows, and a primary key.
var sqlPauses = `select queue, ` + paused.Columns("q") + ` from outbox.queues q where paused order by queue collate "C" limit $1`

func (r *Report) readPauses(ctx context.Context, tx pgx.Tx, in func(string) string) error {
	rows, err := tx.Query(ctx, in(sqlPauses), stoppedBound)
	if err != nil {
		return err
	}
	r.Pauses, err = pgx.AppendRows([]Pause{}, rows, func(row pgx.CollectableRow) (p Pause, err error) {
		err = row.Scan(append([]any{&p.Queue}, p.Fields()...)...)
		return p, err
	})
	r.PausedQueues = make([]string, len(r.Pauses))
	for i := range r.Pauses {
		r.PausedQueues[i] = r.Pauses[i].Queue
	}
	return err
}

// stopped says which queues somebody has paused, and of a single one who and why.
func (r *Report) stopped() string {
	names := r.PausedQueues
	switch {
	case len(names) == 1:
		return names[0] + " is paused by hand" + r.Pauses[0].aside()
	case len(names) > breakersInSentence:
		names = append(names[:breakersInSentence:breakersInSentence], "others")
	}
	return strings.Join(names, ", ") + " are paused by hand"
}

// aside is what is known of the pause, in brackets.
func (p *Pause) aside() string {
	if words := p.Words(moment); words != "" {
		return " (" + words + ")"
	}
	return ""
}

// pauseRows are those of the table.
func (r *Report) pauseRows() (rows [][2]string) {
	for i := range r.Pauses {
		p := &r.Pauses[i]
		rows = append(rows, [2]string{"paused by hand", p.Queue + " " + p.Told(moment)})
	}
	return rows
}
