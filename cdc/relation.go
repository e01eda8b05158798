package cdc

import "slices"

// tableName is the table whose rows are messages, in the configured schema.
const tableName = "messages"

// column is a column of the table that the relay reads.
type column uint8

const (
	foreign column = iota // a column that is none of our business
	columnID
	columnKey
	columnQueue
	columnOrderingKey
	columnPayload
	columnHeaders
	columnDelaySeconds
	columnPriority
	columnDeliverAt
	columnCreatedAt
	columnCount
)

var columnNames = [columnCount]string{
	columnID: "id", columnKey: "key", columnQueue: "queue", columnOrderingKey: "ordering_key",
	columnPayload: "payload", columnHeaders: "headers", columnDelaySeconds: "delay_seconds",
	columnPriority: "priority", columnDeliverAt: "deliver_at", columnCreatedAt: "created_at",
}

// needed are the columns without which the relay would break a promise: it
// could not send the message, not record its outcome, or not keep its order.
// From a table without an optional one, messages come without what it holds.
var needed = []column{columnID, columnKey, columnQueue, columnOrderingKey, columnPayload}

var optional = []column{columnHeaders, columnDelaySeconds, columnPriority, columnDeliverAt, columnCreatedAt}

// relation is what the stream said about a table that is ours.
type relation struct {
	columns []column // what each value of its rows is
	missing string   // the first needed column that it lacks
}

// readRelation reads a Relation message, without its type byte. The relation
// is nil if the table is not schema.messages.
func readRelation(c *cursor, schema string) (id uint32, ours *relation) {
	id = c.uint32()
	isOurs := string(c.name()) == schema
	isOurs = string(c.name()) == tableName && isOurs
	c.byte() // replica identity
	count := int(c.uint16())
	if !isOurs {
		return id, nil
	}
	// A name takes at least 10 bytes of the message: whatever count claims,
	// this allocates less than the message's own size.
	ours = &relation{columns: make([]column, 0, min(count, c.left()/10))}
	for range count {
		c.byte() // flags
		name := c.name()
		c.uint32() // type
		c.uint32() // type modifier
		if c.short {
			return id, nil
		}
		ours.columns = append(ours.columns, columnNamed(string(name)))
	}
	for _, want := range needed {
		if !slices.Contains(ours.columns, want) {
			ours.missing = columnNames[want]
			break
		}
	}
	return id, ours
}

func columnNamed(name string) column {
	for c := columnID; c < columnCount; c++ {
		if columnNames[c] == name {
			return c
		}
	}
	return foreign
}
