package consumer

import (
	"encoding/base64"
	"encoding/json"
	"time"
)

// CloudEvents is the envelope "cloudevents": CloudEvents 1.0 in structured JSON,
// as the relay writes it and others do. The message's ID is the event's id. Where
// several sources send to one queue and do not keep their ids apart, wrap it:
//
//	func bySource(payload []byte) (consumer.Message, error) {
//		m, err := consumer.CloudEvents(payload)
//		m.ID = m.Source + " " + m.ID
//		return m, err
//	}
//
// Data is the member "data" as it is written, or what "data_base64" holds.
func CloudEvents(payload []byte) (Message, error) {
	members, err := object(payload)
	if err != nil {
		return Message{}, err
	}
	event := attributes{members: members}
	version := event.need("specversion")
	m := Message{
		ID: event.need("id"), Source: event.need("source"), Type: event.need("type"),
		Subject: event.text("subject"), Time: event.time("time"),
		TraceParent: event.text("traceparent"), TraceState: event.text("tracestate"),
		Data: event.data(), Raw: payload,
	}
	if event.err == nil && version != "1.0" {
		event.err = malformed("specversion is not 1.0")
	}
	if event.err == nil {
		event.err = checkID(m.ID)
	}
	if event.err != nil {
		return Message{}, event.err
	}
	return m, nil
}

// attributes reads the members of an event and keeps the first error.
type attributes struct {
	members map[string]json.RawMessage
	err     error
}

// need is an attribute that every event has.
func (a *attributes) need(name string) string {
	text := a.text(name)
	if text == "" && a.err == nil {
		a.err = malformed("attribute %s is missing or empty", name)
	}
	return text
}

// text is an attribute that may be missing; null is the same as missing.
func (a *attributes) text(name string) string {
	var text string
	if value, ok := a.members[name]; ok && json.Unmarshal(value, &text) != nil && a.err == nil {
		a.err = malformed("attribute %s is not a string", name)
	}
	return text
}

func (a *attributes) time(name string) time.Time {
	text := a.text(name)
	if text == "" || a.err != nil {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		a.err = malformed("attribute %s is not a time of RFC 3339", name)
	}
	return at
}

func (a *attributes) data() []byte {
	data, plain := a.members["data"]
	if _, encoded := a.members["data_base64"]; !encoded {
		return data
	}
	decoded, err := base64.StdEncoding.DecodeString(a.text("data_base64"))
	if (plain || err != nil) && a.err == nil {
		a.err = malformed("data_base64 is not base64, or stands beside data")
	}
	return decoded
}
