package infrai

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay"
)

// The limits of a key and of a queue's name, as the tables have them too.
const (
	maxKey       = 128
	maxQueueName = 63
)

// AppendBody appends the body of the request that publishes row: the same bytes
// for the same row with the same envelope, for ever. An error says why the row
// cannot be sent; it holds nothing of the payload.
func AppendBody(dst []byte, row *outbox.Row) ([]byte, error) {
	if err := checkRow(row); err != nil {
		return dst, err
	}
	dst = append(dst, '{')
	if row.DelaySeconds.Valid {
		dst = append(dst, `"delay_seconds":`...)
		dst = strconv.AppendInt(dst, int64(row.DelaySeconds.Int32), 10)
		dst = append(dst, ',')
	}
	dst = append(dst, `"idempotency_key":`...)
	dst = appendKey(dst, row.Key)
	dst = append(dst, `,"payload":`...)
	dst, err := appendPayload(dst, row)
	if err != nil {
		return dst, err
	}
	if row.Priority.Valid {
		dst = append(dst, `,"priority":`...)
		dst = strconv.AppendInt(dst, int64(row.Priority.Int32), 10)
	}
	dst = append(dst, `,"queue":"`...)
	dst = append(dst, row.Queue...)
	return append(dst, "\"}\n"...), nil
}

// appendPayload appends what a consumer gets: the payload in its envelope.
func appendPayload(dst []byte, row *outbox.Row) ([]byte, error) {
	switch {
	case row.Envelope == nil:
		dst, err := appendCanonical(dst, row.Payload)
		if err != nil {
			return dst, fmt.Errorf("payload: %w", err)
		}
		return dst, nil
	case row.Envelope.Name == relay.CloudEvents:
		return appendEvent(dst, row)
	}
	return dst, fmt.Errorf("the envelope %q is not known", row.Envelope.Name)
}

// encode returns the body of a row in memory of its own. It is not pooled: the
// transport may read it again after an answer has come, and a body that changed
// meanwhile would be another message under this one's key.
func (p *Publisher) encode(row *outbox.Row) ([]byte, error) {
	const frame = len(`{"delay_seconds":-2147483648,"idempotency_key":"","payload":,"priority":-2147483648,"queue":""}`) + 1
	size := frame + len(row.Key) + len(row.Payload) + len(row.Queue)
	if row.Envelope != nil {
		size += eventFrame + len(row.Key) + len(row.OrderingKey) + len(row.Headers) + len(row.Envelope.Source) + len(row.Envelope.Type)
	}
	body, err := AppendBody(make([]byte, 0, size), row)
	if err != nil {
		return nil, unsendable(err)
	}
	if len(body) > p.cfg.MaxBodyBytes {
		return nil, unsendable(errTooLarge(row, len(body), p.cfg.MaxBodyBytes))
	}
	return body, nil
}

// errTooLarge says of an event what the envelope has to do with it.
func errTooLarge(row *outbox.Row, size, limit int) error {
	if row.Envelope == nil {
		return fmt.Errorf("the request has %d bytes, the limit is %d", size, limit)
	}
	return fmt.Errorf("the request has %d bytes with the envelope %s, the limit is %d", size, row.Envelope.Name, limit)
}

// unsendable refuses a row before any request.
func unsendable(err error) error {
	return &relay.PublishError{Class: relay.Refused, Message: "cannot be sent: " + err.Error()}
}

var (
	errNoKey         = errors.New("the key is missing")
	errLongKey       = fmt.Errorf("the key is longer than %d bytes", maxKey)
	errKeyBytes      = errors.New("the key holds something else than printable ASCII without spaces")
	errNoQueue       = errors.New("the queue is missing")
	errQueueName     = errors.New("the queue's name is none: up to 63 of a-z, 0-9, _ and -")
	errNoPayload     = errors.New("the payload is missing")
	errPayloadObject = errors.New("the payload is not a JSON object")
)

// checkRow reports why a row cannot be a request. The tables' constraints say
// the same; a table may have lost them.
func checkRow(row *outbox.Row) error {
	switch {
	case row.Key == "":
		return errNoKey
	case len(row.Key) > maxKey:
		return errLongKey
	case !graphic(row.Key):
		return errKeyBytes
	case row.Queue == "":
		return errNoQueue
	case !queueName(row.Queue):
		return errQueueName
	case row.Payload == "":
		return errNoPayload
	}
	if i := skipSpace(row.Payload, 0); i == len(row.Payload) || row.Payload[i] != '{' {
		return errPayloadObject
	}
	return nil
}

// graphic reports whether s is printable ASCII without spaces: safe in a header.
func graphic(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func queueName(s string) bool {
	for i := range len(s) {
		switch b := s[i]; {
		case isDigit(b), b >= 'a' && b <= 'z':
		case i > 0 && (b == '_' || b == '-'):
		default:
			return false
		}
	}
	return len(s) <= maxQueueName
}

// appendKey appends the key as a JSON string. Of printable ASCII only the quote
// and the backslash need an escape.
func appendKey(dst []byte, key string) []byte {
	dst = append(dst, '"')
	for i := range len(key) {
		if key[i] == '"' || key[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, key[i])
	}
	return append(dst, '"')
}
