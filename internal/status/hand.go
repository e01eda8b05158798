package status

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// stoppedBound is how many queues are listed that somebody has paused.
const stoppedBound = 100

// Queues have few rows, and a primary key.
const sqlPausedQueues = `select queue from outbox.queues where paused order by queue collate "C" limit $1`

func (r *Report) readPausedQueues(ctx context.Context, tx pgx.Tx, in func(string) string) error {
	rows, err := tx.Query(ctx, in(sqlPausedQueues), stoppedBound)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	r.PausedQueues = append([]string{}, names...)
	return err
}

// stopped says which queues somebody has paused.
func (r *Report) stopped() string {
	names, verb := r.PausedQueues, " are"
	switch {
	case len(names) == 1:
		verb = " is"
	case len(names) > breakersInSentence:
		names = append(names[:breakersInSentence:breakersInSentence], "others")
	}
	return strings.Join(names, ", ") + verb + " paused by hand"
}
