package emulator

import (
	"bytes"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

var batchFields = []field{
	{name: "queue", required: true, schema: queueSchema},
	{name: "messages", required: true, schema: `{"type":"array","minItems":1,"maxItems":100,"items":{"type":"object",` +
		`"properties":{"payload":` + payloadSchema + `,"delay_seconds":` + delaySchema + `,"priority":` + prioritySchema + `},"required":["payload"]}}`},
	{name: "idempotency_key", schema: keySchema},
}

// publishBatch puts several messages into a queue, all or none. Its shape is an
// assumption.
func (s *Server) publishBatch(c *call) answer {
	q, refusal := s.target(c)
	if !refusal.ok() {
		return refusal
	}
	items, err := elements(c.field("messages"))
	if err != nil || len(items) == 0 || len(items) > maxBatch {
		return invalid(fmt.Sprintf("messages is not an array of 1 to %d objects", maxBatch))
	}
	batch := make([]message, len(items))
	delays := make([]time.Duration, len(items))
	for i, item := range items {
		if delays[i], refusal = readItem(c, item, &batch[i]); !refusal.ok() {
			refusal.message = fmt.Sprintf("message %d: %s", i, refusal.message)
			return refusal
		}
	}
	data := []byte(`{"items":[`)
	for i := range batch {
		if i > 0 {
			data = append(data, ',')
		}
		data = fmt.Appendf(data, `{"message_id":"%s"}`, s.accept(c, q, batch[i], delays[i]).id)
	}
	return c.success(append(data, "]}"...))
}

// readItem reads one message of a batch with the rules of a single one.
func readItem(c *call, item jsontext.Value, m *message) (time.Duration, answer) {
	one := call{body: item, settings: c.settings, decoder: jsontext.NewDecoder(new(bytes.Buffer))}
	if err := one.split(); err != nil {
		return 0, invalid(err.Error())
	}
	m.payload = one.field("payload")
	if m.payload == nil {
		return 0, invalid("payload is missing")
	}
	if refusal := one.checkPayload(m.payload, len(item)); !refusal.ok() {
		return 0, refusal
	}
	var refusal answer
	if m.priority, refusal = one.integer("priority", 0, 0, maxPriority); !refusal.ok() {
		return 0, refusal
	}
	return one.seconds("delay_seconds", maxDelaySeconds)
}

// elements splits a JSON array.
func elements(array jsontext.Value) ([]jsontext.Value, error) {
	if array.Kind() != '[' {
		return nil, errNotArray
	}
	d := jsontext.NewDecoder(bytes.NewReader(array))
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	var items []jsontext.Value
	for d.PeekKind() != ']' {
		item, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		items = append(items, item.Clone())
	}
	return items, nil
}
