package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
)

const secret = "whsec_drill"

// stripe sends events as Stripe does, and remembers them as its API does.
type stripe struct {
	stage  *drill.Stage
	url    string
	events [][]byte
}

// event makes an event.
func (s *stripe) event(id, kind, invoice string) []byte {
	event := fmt.Appendf(nil, `{"id":%q,"type":%q,"created":%d,"data":{"object":{"id":%q}}}`,
		id, kind, s.stage.Now().Unix(), invoice)
	s.events = append(s.events, event)
	return event
}

// deliver signs an event now and delivers it.
func (s *stripe) deliver(event []byte) (status int) {
	return s.send(sign(secret, s.stage.Now(), event), event)
}

// send delivers what was signed, by whomever.
func (s *stripe) send(signature http.Header, event []byte) (status int) {
	s.stage.Helper()
	status, _ = s.stage.Post(s.url, signature, event)
	return status
}

func sign(secret string, at time.Time, body []byte) http.Header {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	return http.Header{"Stripe-Signature": {fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))}}
}
