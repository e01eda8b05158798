package consumer

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"
)

// Secrets are those that are valid now; a delivery that is signed with any of
// them passes. It is asked for each delivery, so that a secret can be changed
// while the receiver runs: add the new one, switch the sender over, take the old
// one out. An empty secret counts as none.
type Secrets func() []string

// Fixed are secrets that stay.
func Fixed(secrets ...string) Secrets { return func() []string { return secrets } }

// Verifier checks who sent a delivery. It gets the body as it came, and returns
// an error that wraps [ErrUnauthenticated] if the delivery is not to be trusted.
type Verifier func(header http.Header, body []byte, now time.Time) error

// Unsigned trusts everybody who reaches the receiver. It has to be said aloud:
// a [Sender] without Verify is refused.
func Unsigned(http.Header, []byte, time.Time) error { return nil }

// Encoding is how a signature is written.
type Encoding int

// The encodings.
const (
	Hex Encoding = iota
	Base64
)

// Signature is where an HMAC-SHA256 over the whole body stands. Its method
// Verify is a [Verifier].
type Signature struct {
	// Header has the signature; it must be there exactly once.
	Header string
	// Prefixes are what must stand before it, one of them: "sha256=". Without
	// any, nothing does. "" among them lets it stand alone too.
	Prefixes []string
	// Encoding is how it is written.
	Encoding Encoding
	// Secrets are the keys.
	Secrets Secrets
}

// Verify is a [Verifier]. It compares in constant time.
func (s Signature) Verify(header http.Header, body []byte, _ time.Time) error {
	text, err := only(header, s.Header)
	if err != nil {
		return unauthenticated("%v", err)
	}
	given, ok := s.decode(text)
	if !ok {
		return unauthenticated("%s is not a signature", s.Header)
	}
	return compare(s.Secrets, [][]byte{given}, body)
}

func (s Signature) decode(text string) ([]byte, bool) {
	for _, prefix := range s.Prefixes {
		rest, found := strings.CutPrefix(text, prefix)
		if !found {
			continue
		}
		if given, ok := decode(rest, s.Encoding); ok {
			return given, true
		}
	}
	if len(s.Prefixes) > 0 {
		return nil, false
	}
	return decode(text, s.Encoding)
}

func decode(text string, encoding Encoding) (given []byte, ok bool) {
	var err error
	if encoding == Base64 {
		given, err = base64.StdEncoding.Strict().DecodeString(text)
	} else {
		given, err = hex.DecodeString(text)
	}
	return given, err == nil && len(given) == sha256.Size
}

var errNoSecret = errors.New("no secret is set, so that no signature can be checked")

// compare reports whether any of the given signatures over the parts was made
// with any of the secrets. It always looks at all of them.
func compare(secrets Secrets, given [][]byte, parts ...[]byte) error {
	if secrets == nil {
		return errNoSecret
	}
	usable, match := false, false
	for _, secret := range secrets() {
		if secret == "" {
			continue // anybody can sign with that
		}
		usable = true
		mac := hmac.New(sha256.New, []byte(secret))
		for _, part := range parts {
			mac.Write(part)
		}
		want := mac.Sum(nil)
		for _, signature := range given {
			match = hmac.Equal(signature, want) || match
		}
	}
	switch {
	case !usable:
		return errNoSecret
	case !match:
		return unauthenticated("the signature does not fit the body and any of the secrets")
	}
	return nil
}

// only is the value of a header that must be there exactly once: of two, the
// sender and we might each look at another one.
func only(header http.Header, name string) (string, error) {
	values := header.Values(name)
	if len(values) != 1 || values[0] == "" {
		return "", errors.New("header " + name + " is missing, empty or repeated")
	}
	return values[0], nil
}
