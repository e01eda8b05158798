package consumer

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Stripe takes webhooks of Stripe: Stripe-Signature, and the event's own "id",
// which is signed with the body.
func Stripe(secrets Secrets) Sender {
	return Sender{Verify: StripeSignature{Secrets: secrets}.Verify, Read: func(_ http.Header, body []byte) (Message, error) {
		id, err := Field("id")(body)
		if err != nil {
			return Message{}, err
		}
		m := Message{ID: id, Source: "stripe", Data: body, Raw: body}
		m.Type, m.Time = describeStripe(body)
		return m, nil
	}}
}

// describeStripe reads what nothing depends on, so that it may have any form.
func describeStripe(body []byte) (kind string, created time.Time) {
	var event struct {
		Type    any `json:"type"`
		Created any `json:"created"`
	}
	_ = json.Unmarshal(body, &event) // it is an object: Field has read it
	kind, _ = event.Type.(string)
	switch at := event.Created.(type) {
	case float64:
		created = time.Unix(int64(at), 0).UTC()
	case string:
		created, _ = time.Parse(time.RFC3339Nano, at)
	}
	return kind, created
}

// StripeSignature is the header Stripe-Signature: t=TIME,v1=HEX over "TIME.BODY".
type StripeSignature struct {
	// Secrets are the keys.
	Secrets Secrets
	// Tolerance is how far the sender's time may be from ours, in both
	// directions. 0 is 5 minutes.
	Tolerance time.Duration
}

const (
	stripeHeader     = "Stripe-Signature"
	defaultTolerance = 5 * time.Minute
)

// Verify is a [Verifier]. It compares in constant time. Signatures of other
// versions than v1 count for nothing.
func (s StripeSignature) Verify(header http.Header, body []byte, now time.Time) error {
	text, err := only(header, stripeHeader)
	if err != nil {
		return unauthenticated("%v", err)
	}
	stamp, given := splitStripe(text)
	seconds, err := strconv.ParseUint(stamp, 10, 40) // 40 bits: no overflow in the subtraction
	if err != nil || len(given) == 0 {
		return unauthenticated("%s has no single time, or no signature v1", stripeHeader)
	}
	if err := compare(s.Secrets, given, []byte(stamp), []byte("."), body); err != nil {
		return err
	}
	tolerance := s.Tolerance
	if tolerance == 0 {
		tolerance = defaultTolerance
	}
	if now.Sub(time.Unix(int64(seconds), 0)).Abs() > tolerance {
		return unauthenticated("the signature is older or newer than %s", tolerance)
	}
	return nil
}

// splitStripe returns the only time, or none, and all signatures of version 1.
func splitStripe(text string) (stamp string, given [][]byte) {
	times := 0
	for element := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(element), "=")
		switch name {
		case "t":
			stamp = value
			times++
		case "v1":
			if signature, ok := decode(value, Hex); ok {
				given = append(given, signature)
			}
		}
	}
	if times != 1 {
		return "", given
	}
	return stamp, given
}
