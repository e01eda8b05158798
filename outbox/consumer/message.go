package consumer

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// Message is an event as a consumer gets it. ID is what is claimed; the other
// fields are empty where the sender says nothing.
type Message struct {
	// ID is the event's own id: equal for all deliveries of the event, different
	// for different events. 1 to [outbox.MaxEventIDBytes] bytes.
	ID string
	// Source, Type and Subject are those of CloudEvents. The relay writes the
	// ordering key into Subject.
	Source, Type, Subject string
	// Time is when the event happened, as far as the sender says so.
	Time time.Time
	// TraceParent and TraceState lead to the trace of the sender.
	TraceParent, TraceState string
	// Data is what the application wrote, without its envelope.
	Data []byte
	// Raw is what was delivered, with its envelope.
	Raw []byte
	// Header is that of the request, nil for a message of a queue.
	Header http.Header
	// QueueMessageID is the queue's number of the message, empty for what came
	// otherwise. It is no event id: a message that was published twice has two.
	QueueMessageID string
}

// Envelope reads what a sender wrapped around an event. It returns an error for
// what it cannot read, and then nothing is claimed. It is called from several
// goroutines at once.
type Envelope func(payload []byte) (Message, error)

// Plain is the envelope "none": the payload is what the application wrote, and
// the event's id stands in it, for example id = Field("event_id").
func Plain(id func(payload []byte) (string, error)) Envelope {
	return func(payload []byte) (Message, error) {
		event, err := id(payload)
		if err != nil {
			return Message{}, err
		}
		return Message{ID: event, Data: payload, Raw: payload}, checkID(event)
	}
}

// Field finds an id in a JSON object: Field("order", "id") is the member "id" of
// the object in the member "order". The id is a string, or a whole number, which
// keeps its digits. Names are compared exactly, and of repeated names the last
// one counts.
func Field(path ...string) func(payload []byte) (string, error) {
	name := strconv.Quote(strings.Join(path, "."))
	return func(payload []byte) (string, error) {
		value := json.RawMessage(payload)
		for _, step := range path {
			members, err := object(value)
			if err != nil {
				return "", err
			}
			next, ok := members[step]
			if !ok {
				return "", malformed("field %s is missing", name)
			}
			value = next
		}
		return scalar(value, name)
	}
}

// scalar reads an id. Only digits pass as a number: 1e3 and 1000 would be two
// ids of one event.
func scalar(value json.RawMessage, name string) (string, error) {
	var text string
	if json.Unmarshal(value, &text) == nil && len(value) > 0 && value[0] == '"' {
		return text, checkID(text)
	}
	if digits := string(value); digits != "" && strings.Trim(digits, "0123456789") == "" && json.Valid(value) {
		return digits, checkID(digits)
	}
	return "", malformed("field %s is neither a string nor a whole number", name)
}

// object reads the members of a JSON object. The errors of package json are not
// repeated, because they quote what they stumble over.
func object(text []byte) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	if !utf8.Valid(text) || json.Unmarshal(text, &members) != nil || members == nil {
		return nil, malformed("not a JSON object in UTF-8")
	}
	return members, nil
}

// checkID reports an id that cannot be claimed. Package json reads half a
// surrogate pair as U+FFFD, so that two ids could become one.
func checkID(id string) error {
	if n := len(id); n == 0 || n > outbox.MaxEventIDBytes {
		return malformed("the event's id has %d bytes, want 1 to %d", n, outbox.MaxEventIDBytes)
	}
	if !utf8.ValidString(id) || strings.ContainsAny(id, "\x00\uFFFD") {
		return malformed("the event's id is not text")
	}
	return nil
}
