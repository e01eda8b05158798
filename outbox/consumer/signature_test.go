package consumer_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func sum(secret string, parts ...string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	for _, part := range parts {
		mac.Write([]byte(part))
	}
	return mac.Sum(nil)
}

func stripeHeader(at time.Time, secret, body string) string {
	stamp := strconv.FormatInt(at.Unix(), 10)
	return "t=" + stamp + ",v1=" + hex.EncodeToString(sum(secret, stamp, ".", body))
}

// scheme is one way to sign, with how a sender does it.
type scheme struct {
	header string
	make   func(secrets consumer.Secrets) consumer.Sender
	sign   func(secret, body string) string
}

var schemes = map[string]scheme{
	"infrai": {
		"X-Infrai-Signature",
		func(s consumer.Secrets) consumer.Sender { return consumer.Infrai(s, consumer.CloudEvents) },
		func(secret, body string) string { return "sha256=" + hex.EncodeToString(sum(secret, body)) },
	},
	"infrai, bare": {
		"X-Infrai-Signature",
		func(s consumer.Secrets) consumer.Sender { return consumer.Infrai(s, consumer.CloudEvents) },
		func(secret, body string) string { return hex.EncodeToString(sum(secret, body)) },
	},
	"stripe": {"Stripe-Signature", consumer.Stripe, func(secret, body string) string { return stripeHeader(noon, secret, body) }},
	"shopify": {
		"X-Shopify-Hmac-Sha256", consumer.Shopify,
		func(secret, body string) string { return base64.StdEncoding.EncodeToString(sum(secret, body)) },
	},
	"github": {
		"X-Hub-Signature-256", consumer.GitHub,
		func(secret, body string) string { return "sha256=" + hex.EncodeToString(sum(secret, body)) },
	},
}

const signedBody = `{"id":"evt_1"}`

func header(name string, values ...string) http.Header {
	h := make(http.Header)
	for _, value := range values {
		h.Add(name, value)
	}
	return h
}

// Only the right signature passes, of each sender.
func TestVerify(t *testing.T) {
	t.Parallel()
	for name, s := range schemes {
		good := s.sign("new", signedBody)
		short, other := good[:len(good)-2], s.sign("other", signedBody)
		for _, test := range []struct {
			what    string
			secrets []string
			header  http.Header
			body    string
			want    bool
		}{
			{"good", []string{"new"}, header(s.header, good), signedBody, true},
			{"one of several secrets", []string{"old", "new"}, header(s.header, good), signedBody, true},
			{"the other of several secrets", []string{"new", "old"}, header(s.header, good), signedBody, true},
			{"beside a secret that is empty", []string{"", "new"}, header(s.header, good), signedBody, true},
			{"none", []string{"new"}, header(s.header), signedBody, false},
			{"empty", []string{"new"}, header(s.header, ""), signedBody, false},
			{"truncated", []string{"new"}, header(s.header, short), signedBody, false},
			{"longer", []string{"new"}, header(s.header, good+"00"), signedBody, false},
			{"of another secret", []string{"new"}, header(s.header, other), signedBody, false},
			{"of a secret that was taken out", []string{"newer"}, header(s.header, good), signedBody, false},
			{"of another body", []string{"new"}, header(s.header, good), `{"id":"evt_2"}`, false},
			{"of a longer body", []string{"new"}, header(s.header, good), signedBody + "\n", false},
			{"of an empty body", []string{"new"}, header(s.header, good), "", false},
			{"twice", []string{"new"}, header(s.header, good, good), signedBody, false},
			{"no signature at all", []string{"new"}, header(s.header, "anything"), signedBody, false},
			{"another prefix", []string{"new"}, header(s.header, "sha1="+good), signedBody, false},
			{"with an empty secret", []string{"", "new"}, header(s.header, s.sign("", signedBody)), signedBody, false},
		} {
			err := s.make(consumer.Fixed(test.secrets...)).Verify(test.header, []byte(test.body), noon)
			if test.want && err != nil || !test.want && !errors.Is(err, consumer.ErrUnauthenticated) {
				t.Errorf("%s, %s: %v", name, test.what, err)
			}
		}
	}
}

// Without a secret nothing can be checked: that is our fault, and no yes.
func TestVerify_WithoutASecret(t *testing.T) {
	t.Parallel()
	for name, s := range schemes {
		for _, secrets := range []consumer.Secrets{nil, consumer.Fixed(), consumer.Fixed("")} {
			err := s.make(secrets).Verify(header(s.header, s.sign("", signedBody)), []byte(signedBody), noon)
			if err == nil || errors.Is(err, consumer.ErrUnauthenticated) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A change of any byte of the body or of the signature is noticed.
func TestVerify_AnyChangeIsNoticed(t *testing.T) {
	t.Parallel()
	for name, s := range schemes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				secret := rapid.StringN(1, 40, -1).Draw(t, "secret")
				body := rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "body")
				verify := s.make(consumer.Fixed(secret)).Verify
				signature := s.sign(secret, string(body))
				if err := verify(header(s.header, signature), body, noon); err != nil {
					t.Fatalf("the right one: %v", err)
				}
				changed := append([]byte(nil), body...)
				changed[rapid.IntRange(0, len(body)-1).Draw(t, "at")] ^= rapid.ByteRange(1, 255).Draw(t, "by")
				if verify(header(s.header, signature), changed, noon) == nil {
					t.Error("a changed body passes")
				}
				forged := []byte(signature)
				at := rapid.IntRange(0, len(forged)-1).Draw(t, "forged at")
				forged[at] = rapid.ByteRange(' ', '~').Draw(t, "forged")
				if !strings.EqualFold(string(forged), signature) && verify(header(s.header, string(forged)), body, noon) == nil {
					t.Errorf("%q passes for %q", forged, signature)
				}
			})
		})
	}
}

// The example that GitHub publishes.
func TestVerify_PublishedExample(t *testing.T) {
	t.Parallel()
	const signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
	verify := consumer.GitHub(consumer.Fixed("It's a Secret to Everybody")).Verify
	if err := verify(header("X-Hub-Signature-256", signature), []byte("Hello, World!"), noon); err != nil {
		t.Error(err)
	}
}

func TestVerify_StripeTime(t *testing.T) {
	t.Parallel()
	signature := hex.EncodeToString(sum("new", "1772366400", ".", signedBody))
	for text, want := range map[string]bool{
		stripeHeader(noon, "new", signedBody):                                     true,
		stripeHeader(noon.Add(-5*time.Minute), "new", signedBody):                 true,
		stripeHeader(noon.Add(-5*time.Minute-time.Second), "new", signedBody):     false,
		stripeHeader(noon.Add(5*time.Minute+time.Second), "new", signedBody):      false,
		"t=1772366400,v1=" + signature:                                            true,
		"v1=" + signature + ",t=1772366400":                                       true,
		"t=1772366400, v0=aa, v1=" + strings.Repeat("0", 64) + ",v1=" + signature: true,  // while Stripe rotates
		"t=1772366401,v1=" + signature:                                            false, // the time is signed
		"t=01772366400,v1=" + signature:                                           false,
		"t=1772366400,t=1772366400,v1=" + signature:                               false,
		"t=1772366400,v0=" + signature:                                            false,
		"v1=" + signature:                                                         false,
		"t=,v1=" + signature:                                                      false,
		"t=-1,v1=" + signature:                                                    false,
		"t=99999999999999999999,v1=" + signature:                                  false,
		"t=1772366400":                                                            false,
	} {
		err := consumer.Stripe(consumer.Fixed("new")).Verify(header("Stripe-Signature", text), []byte(signedBody), noon)
		if (err == nil) != want {
			t.Errorf("%s: %v, want %t", text, err, want)
		}
	}
}
