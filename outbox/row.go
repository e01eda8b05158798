package outbox

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Row is a message as the table and the WAL hold it: what the relay works
// with. Applications write a [Message] and never need a Row.
//
// Payload and Headers are the JSON text exactly as Postgres prints it, so that
// numbers keep their digits; they are valid JSON because the columns are jsonb.
// Key, Queue, OrderingKey, Payload and Headers are empty where the column is
// null. The text fields may share one underlying string; keeping one of them
// keeps them all in memory.
type Row struct {
	// ID is the primary key. It grows in insert order, which is not commit order.
	ID int64
	// XID is the transaction that wrote the row, as xid8; 0 if not known.
	XID uint64
	// Key is the idempotency key.
	Key string
	// Queue is the name of the queue.
	Queue string
	// OrderingKey joins messages of one queue that must arrive in commit order;
	// empty means that the message runs freely.
	OrderingKey string
	// Payload is a JSON object.
	Payload string
	// Headers is a JSON object of strings.
	Headers string
	// DelaySeconds is handed to the queue as it is.
	DelaySeconds pgtype.Int4
	// Priority is handed to the queue as it is.
	Priority pgtype.Int4
	// DeliverAt holds the message in the relay until then; zero means at once.
	DeliverAt time.Time
	// CreatedAt is the row's created_at; zero if Go's time cannot hold it
	// (infinity, years BC).
	CreatedAt time.Time
	// CommittedAt is when its transaction committed, by the server's clock. Only
	// the WAL says so: it is zero in a row that was read from the table.
	CommittedAt time.Time
	// Envelope is what the payload is wrapped in on its way to the queue; nil
	// sends it as it is. It is no column: it follows from ID and the table
	// envelopes.
	Envelope *Envelope
}

// Envelope is what payloads are wrapped in.
type Envelope struct {
	// Name is that of the column queues.envelope: cloudevents.
	Name string
	// Source and Type are those of an event whose message says nothing else.
	Source, Type string
}

// Size is the number of bytes of text that the row holds: what it costs of the
// relay's window.
func (r *Row) Size() int {
	return len(r.Key) + len(r.Queue) + len(r.OrderingKey) + len(r.Payload) + len(r.Headers)
}
