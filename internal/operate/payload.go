package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Payload is what a message says, for people.
type Payload struct {
	// Text is the payload, and Headers the headers if there are any. Cut says that
	// the payload is longer.
	Text, Headers string
	Cut           bool
}

// payloadChars is how much of a payload is read: a person does not read more.
const payloadChars = 8192

const sqlPayload = `
select left(payload::text, $2), coalesce(left(headers::text, $2), ''), length(payload::text) > $2
from outbox.messages where id = $1`

// Payload returns the payload of a message. Unlike everything else here it needs
// the right to read the table of messages.
func (o *Operator) Payload(ctx context.Context, id int64) (*Payload, error) {
	var p Payload
	err := o.conn.QueryRow(ctx, o.in(sqlPayload), id, payloadChars).Scan(&p.Text, &p.Headers, &p.Cut)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("message %d was deleted", id)
	}
	if err != nil {
		return nil, fmt.Errorf("read the payload of message %d: %w", id, err)
	}
	return &p, nil
}
