package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Message is what an application sends. Key, Queue and Payload are needed; the
// zero value of every other field means "not given".
type Message struct {
	// Key is the idempotency key: 1 to 128 printable ASCII characters without
	// spaces, unique in the outbox. See the package documentation.
	Key string
	// Queue is the name of the queue: 1 to 63 characters of a-z, 0-9, _ and -,
	// the first one a letter or a digit.
	Queue string
	// OrderingKey joins the messages of a queue that must arrive in commit
	// order; at most 255 characters.
	OrderingKey string
	// Payload becomes a JSON object through encoding/json. JSON that is ready
	// goes in as json.RawMessage; a plain []byte or string is not an object.
	Payload any
	// Headers are for the envelope of the queue: with envelope=cloudevents the
	// headers ce-type, ce-source, traceparent and tracestate become attributes of
	// the event. Without an envelope they stay at home. Together they have at most
	// [MaxHeadersBytes], counted as those of the payload.
	Headers map[string]string
	// Delay asks the queue to hold the message back, counted from its arrival
	// there: whole seconds, at most seven days.
	Delay time.Duration
	// Priority is handed to the queue, 0 to 9: Priority: new(5).
	Priority *int
	// DeliverAt lets the relay hold the message back until then, without a
	// limit, so that it can still be withdrawn.
	DeliverAt time.Time
}

// Validate reports everything that the outbox would refuse, as [LimitError]s
// joined into one error, or the error of marshalling the payload. It marshals
// the payload. [Enqueue] validates by itself, before it talks to the server.
func (m Message) Validate() error {
	_, err := m.record()
	return err
}

// record is a message as the INSERT takes it: the text of each column in the
// order of the statement, nil for null.
type record [8]*string

// record checks the message and marshals its payload.
func (m Message) record() (record, error) {
	payload, err := marshalPayload(m.Payload)
	err = errors.Join(
		checkKey(m.Key),
		checkQueue(m.Queue),
		checkOrderingKey(m.OrderingKey),
		err,
		checkHeaders(m.Headers),
		checkDelay(m.Delay),
		checkPriority(m.Priority),
		checkDeliverAt(m.DeliverAt),
	)
	if err != nil {
		return record{}, err
	}
	r := record{&m.Key, &m.Queue, nil, &payload}
	if m.OrderingKey != "" {
		r[2] = &m.OrderingKey
	}
	if len(m.Headers) > 0 {
		headers, err := json.Marshal(m.Headers)
		if err != nil {
			return record{}, err
		}
		r[4] = new(string(headers))
	}
	if m.Delay != 0 {
		r[5] = new(strconv.FormatInt(int64(m.Delay/time.Second), 10))
	}
	if m.Priority != nil {
		r[6] = new(strconv.Itoa(*m.Priority))
	}
	if !m.DeliverAt.IsZero() {
		// Postgres would round to microseconds, perhaps into the year 10000.
		r[7] = new(m.DeliverAt.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano))
	}
	return r, nil
}

// records checks all messages and reports everything wrong at once.
func records(messages []Message) ([]record, error) {
	records := make([]record, len(messages))
	var problems []error
	for i, m := range messages {
		r, err := m.record()
		if err != nil && len(messages) > 1 {
			err = fmt.Errorf("message %d: %w", i, err)
		}
		records[i], problems = r, append(problems, err)
	}
	return records, errors.Join(problems...)
}
