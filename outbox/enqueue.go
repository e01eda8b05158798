package outbox

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// DefaultSchema is the schema of the outbox unless somebody chose another one.
const DefaultSchema = "outbox"

// Enqueue writes messages into the outbox of schema [DefaultSchema] as part of
// the caller's transaction, all in one round trip. It returns their ids in the
// order of the messages, which is also the order in which they will arrive
// where they share an ordering key.
//
// A [LimitError] means that nothing was sent to the server. With
// [ErrDuplicateKey] the id of each message that was there already is 0, and the
// others were written. After any other error the transaction can only be rolled
// back. Without messages it does nothing.
func Enqueue(ctx context.Context, tx pgx.Tx, messages ...Message) ([]int64, error) {
	return standard.Enqueue(ctx, tx, messages...)
}

// EnqueueSQL is [Enqueue] for a transaction of database/sql, with whichever
// driver.
func EnqueueSQL(ctx context.Context, tx *sql.Tx, messages ...Message) ([]int64, error) {
	return standard.EnqueueSQL(ctx, tx, messages...)
}

var standard = New(DefaultSchema)

// Outbox writes into the outbox of one schema.
type Outbox struct {
	insertOne, insertMany string

	claims claimStatements
}

// New returns the outbox of a schema, whose name is taken as it is, capital
// letters included. It does not look whether the schema exists.
func New(schema string) *Outbox {
	messages := pgx.Identifier{schema, "messages"}.Sanitize()
	return &Outbox{
		insertOne: fmt.Sprintf(insertOne, messages), insertMany: fmt.Sprintf(insertMany, messages),
		claims: newClaimStatements(schema),
	}
}

// Enqueue is the function [Enqueue] for this schema.
func (o *Outbox) Enqueue(ctx context.Context, tx pgx.Tx, messages ...Message) ([]int64, error) {
	records, err := records(messages)
	if err != nil || len(messages) == 0 {
		return nil, enqueueError(messages, err)
	}
	insert, args := o.statement(records, func(column []*string) any { return column })
	rows, err := tx.Query(ctx, insert, args...)
	if err != nil {
		return nil, enqueueError(messages, err)
	}
	written := make(map[string]int64, len(messages))
	var id int64
	var key string
	_, err = pgx.ForEachRow(rows, []any{&id, &key}, func() error {
		written[key] = id
		return nil
	})
	if err != nil {
		return nil, enqueueError(messages, err)
	}
	return ids(messages, written)
}

// EnqueueSQL is the function [EnqueueSQL] for this schema.
func (o *Outbox) EnqueueSQL(ctx context.Context, tx *sql.Tx, messages ...Message) ([]int64, error) {
	records, err := records(messages)
	if err != nil || len(messages) == 0 {
		return nil, enqueueError(messages, err)
	}
	insert, args := o.statement(records, func(column []*string) any { return arrayLiteral(column) })
	rows, err := tx.QueryContext(ctx, insert, args...)
	if err != nil {
		return nil, enqueueError(messages, err)
	}
	defer func() { _ = rows.Close() }() // rows.Err says what matters
	written := make(map[string]int64, len(messages))
	for rows.Next() {
		var id int64
		var key string
		if err := rows.Scan(&id, &key); err != nil {
			return nil, enqueueError(messages, err)
		}
		written[key] = id
	}
	if err := rows.Err(); err != nil {
		return nil, enqueueError(messages, err)
	}
	return ids(messages, written)
}

// ids gives each message the id that was written for its key. Of messages with
// the same key the first one was written.
func ids(messages []Message, written map[string]int64) ([]int64, error) {
	ids := make([]int64, len(messages))
	var duplicates []string
	for i, m := range messages {
		id, ok := written[m.Key]
		if !ok {
			duplicates = append(duplicates, m.Key)
		}
		ids[i] = id
		delete(written, m.Key)
	}
	if duplicates != nil {
		return ids, enqueueError(messages, duplicateKeys(duplicates))
	}
	return ids, nil
}

func enqueueError(messages []Message, err error) error {
	switch {
	case err == nil:
		return nil
	case len(messages) == 1:
		return fmt.Errorf("enqueue message: %w", withRemedy(err))
	default:
		return fmt.Errorf("enqueue %d messages: %w", len(messages), withRemedy(err))
	}
}
