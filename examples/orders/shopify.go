package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
)

// shopify sends orders as Shopify does.
type shopify struct {
	stage  *drill.Stage
	url    string
	secret string
}

// order is the body of an order of two mugs.
func order(id int) []byte {
	return fmt.Appendf(nil, `{"id":%d,"line_items":[{"sku":"mug","quantity":2}]}`, id)
}

// event is the id of the event of an order.
func event(id int) string { return fmt.Sprintf("event-%d", id) }

// place delivers an order under its event.
func (s *shopify) place(id int) (status int, answer string) { return s.deliver(event(id), order(id)) }

// deliver signs and delivers a body under an event id.
func (s *shopify) deliver(event string, body []byte) (status int, answer string) {
	s.stage.Helper()
	status, text := s.stage.Post(s.url, s.sign(event, body), body)
	return status, string(text)
}

// sign makes the header of a delivery. The signature covers the body, and not the
// event's id.
func (s *shopify) sign(event string, body []byte) http.Header {
	mac := hmac.New(sha256.New, []byte(s.secret))
	mac.Write(body)
	header := http.Header{}
	header.Set("X-Shopify-Hmac-Sha256", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	header.Set("X-Shopify-Event-Id", event)
	header.Set("X-Shopify-Topic", "orders/create")
	return header
}
