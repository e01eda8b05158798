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

// fill returns the marks of a batch: message_id, queue_message_id, attempts,
// possible_duplicate.
func (c *copyBuffer) fill(batch []*outcome) io.Reader {
	c.bytes = c.bytes[:0]
	for _, o := range batch {
		if o.marks() {
			c.bytes = appendDispatched(c.bytes, o)
		}
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
	if o.duplicate {
		return append(b, '\t', 't', '\n')
	}
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

// orNull is nil for the zero value.
func orNull[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}
