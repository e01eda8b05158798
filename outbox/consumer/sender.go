package consumer

import (
	"encoding/json"
	"net/http"
)

// Sender is how the deliveries of one sender are trusted and read. Both
// functions are called from several goroutines at once.
type Sender struct {
	// Verify comes first, on the body as it came.
	Verify Verifier
	// Read makes a message of a delivery that is to be trusted. Its error means
	// that the delivery is malformed.
	Read func(header http.Header, body []byte) (Message, error)
}

// Infrai is the push delivery of the Infrai queue: X-Infrai-Signature, an
// HMAC-SHA256 over the body in hexadecimal, with or without "sha256=". The body
// is an object with the payload in its member "payload", beside "message_id"; any
// other body is the payload itself.
func Infrai(secrets Secrets, envelope Envelope) Sender {
	signature := Signature{Header: "X-Infrai-Signature", Prefixes: []string{"sha256=", ""}, Secrets: secrets}
	if envelope == nil {
		return Sender{Verify: signature.Verify} // which NewReceiver refuses
	}
	return Sender{Verify: signature.Verify, Read: func(_ http.Header, body []byte) (Message, error) {
		members, err := object(body)
		if err != nil {
			return Message{}, err
		}
		id, payload := "", body
		if inner, ok := members["payload"]; ok && json.Unmarshal(members["message_id"], &id) == nil {
			payload = inner
		}
		m, err := envelope(payload)
		m.QueueMessageID = id
		return m, err
	}}
}

// Shopify takes webhooks of Shopify: X-Shopify-Hmac-Sha256 in base64, and the
// event's id in X-Shopify-Event-Id.
func Shopify(secrets Secrets) Sender {
	signature := Signature{Header: "X-Shopify-Hmac-Sha256", Encoding: Base64, Secrets: secrets}
	return Sender{Verify: signature.Verify, Read: func(header http.Header, body []byte) (Message, error) {
		m, err := readHeaderID("X-Shopify-Event-Id", header, body)
		m.Source, m.Type = header.Get("X-Shopify-Shop-Domain"), header.Get("X-Shopify-Topic")
		return m, err
	}}
}

// GitHub takes webhooks of GitHub: X-Hub-Signature-256, and the id of the
// delivery in X-GitHub-Delivery, which a redelivery repeats. The webhook's content
// type has to be application/json.
func GitHub(secrets Secrets) Sender {
	signature := Signature{Header: "X-Hub-Signature-256", Prefixes: []string{"sha256="}, Secrets: secrets}
	return Sender{Verify: signature.Verify, Read: func(header http.Header, body []byte) (Message, error) {
		m, err := readHeaderID("X-GitHub-Delivery", header, body)
		m.Source, m.Type = "github", header.Get("X-GitHub-Event")
		return m, err
	}}
}

// readHeaderID is a JSON object whose id stands in a header.
func readHeaderID(name string, header http.Header, body []byte) (Message, error) {
	if _, err := object(body); err != nil {
		return Message{}, err
	}
	return HeaderID(name)(header, body)
}

// HeaderID is Read of a free [Sender] whose events have their id in a header.
// The body may be anything. A signature over the body alone does not cover the
// header: prefer an id in the body where there is one.
func HeaderID(name string) func(http.Header, []byte) (Message, error) {
	return func(header http.Header, body []byte) (Message, error) {
		id, err := only(header, name)
		if err != nil {
			return Message{}, malformed("%v", err)
		}
		return Message{ID: id, Data: body, Raw: body}, checkID(id)
	}
}

// BodyID is Read of a free [Sender] whose events are in an envelope, for example
// Plain(Field("event", "id")) or CloudEvents.
func BodyID(envelope Envelope) func(http.Header, []byte) (Message, error) {
	return func(_ http.Header, body []byte) (Message, error) { return envelope(body) }
}
