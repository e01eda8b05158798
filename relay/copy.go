package relay

import (
	"bytes"
	"io"
	"strconv"
)

// copyBuffer builds the text format of COPY for outcomes. It is used again for
// every batch.
type copyBuffer struct {
	bytes  []byte
	reader bytes.Reader
}

// fill returns the rows of a batch of dispatched messages: message_id,
// queue_message_id, attempts, possible_duplicate.
func (c *copyBuffer) fill(batch []*outcome) io.Reader {
	c.bytes = c.bytes[:0]
	for _, o := range batch {
		c.bytes = appendDispatched(c.bytes, o)
	}
	c.reader.Reset(c.bytes)
	return &c.reader
}

func appendDispatched(b []byte, o *outcome) []byte {
	b = strconv.AppendInt(b, o.row().ID, 10)
	b = append(b, '\t')
	if id := o.receipt.QueueMessageID; id == "" {
		b = append(b, '\\', 'N')
	} else {
		b = appendCopyText(b, id)
	}
	b = append(b, '\t')
	b = strconv.AppendInt(b, int64(o.message.attempts), 10)
	return append(b, '\t', 'f', '\n')
}

// appendCopyText escapes the characters that the format gives a meaning
// (https://www.postgresql.org/docs/current/sql-copy.html, "Text Format").
func appendCopyText(b []byte, text string) []byte {
	for i := range len(text) {
		switch c := text[i]; c {
		case '\\':
			b = append(b, '\\', '\\')
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		case 0: // cannot be stored in text
		default:
			b = append(b, c)
		}
	}
	return b
}

// columns holds a mixed batch as arrays, one per column.
type columns struct {
	dispatched struct {
		ids             []int64
		queueMessageIDs []*string
		attempts        []int32
	}
	dead struct {
		ids        []int64
		reasons    []string
		attempts   []int32
		statuses   []*int32
		codes      []*string
		texts      []string
		requestIDs []*string
	}
	undefer []int64 // messages that leave the table deferred
}

func columnsOf(batch []*outcome) *columns {
	c := &columns{}
	for _, o := range batch {
		id, attempts := o.row().ID, int32(o.message.attempts)
		if o.message.backlog {
			c.undefer = append(c.undefer, id)
		}
		switch o.state {
		case dispatched:
			d := &c.dispatched
			d.ids = append(d.ids, id)
			d.queueMessageIDs = append(d.queueMessageIDs, orNull(o.receipt.QueueMessageID))
			d.attempts = append(d.attempts, attempts)
		case dead:
			d, f := &c.dead, o.failure
			d.ids = append(d.ids, id)
			d.reasons = append(d.reasons, f.Class.String())
			d.attempts = append(d.attempts, attempts)
			d.statuses = append(d.statuses, orNull(int32(f.Status)))
			d.codes = append(d.codes, orNull(storable(f.Code)))
			d.texts = append(d.texts, storable(f.Error()))
			d.requestIDs = append(d.requestIDs, orNull(storable(f.RequestID)))
		case withdrawn:
		}
	}
	return c
}

// orNull is nil for the zero value.
func orNull[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}
