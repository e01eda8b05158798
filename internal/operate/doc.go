// Package operate is what operators do to messages and queues: look at dead
// letters and deferred messages, send them again, set them aside for good, and
// change the settings of single queues.
//
// It talks to Postgres alone. A running relay finds what was changed in the
// tables by itself: messages within a second, settings within two. Without one
// the change waits for the next relay.
//
// A message is never changed. Redriven, it goes out with the same key and the
// same bytes as before.
package operate

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Operator acts in one schema, on a connection that nobody else uses meanwhile.
type Operator struct {
	// Pause is the wait between two batches of a redrive.
	Pause time.Duration

	conn   database
	schema string
}

// database is a *[pgx.Conn], or a transaction that somebody else has begun.
type database interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Begin(ctx context.Context) (pgx.Tx, error)
}

// redriveBatch and redrivePause bound a redrive to 100 messages a second: what
// was refused once may be refused again, and what is live shares the queue.
const (
	redriveBatch = 100
	redrivePause = time.Second
)

// New returns an operator for the tables in schema: of a connection, or in a
// transaction.
func New(conn database, schema string) *Operator {
	return &Operator{Pause: redrivePause, conn: conn, schema: schema}
}

// in puts the schema's name into a statement.
func (o *Operator) in(sql string) string {
	return strings.ReplaceAll(sql, "outbox.", pgx.Identifier{o.schema}.Sanitize()+".")
}
