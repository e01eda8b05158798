package pgtext_test

import (
	"errors"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

func TestOneLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                    "",
		"connection reset":    "connection reset",
		"one\ntwo":            "one; two",
		"no:\n\t::1: refused": "no: ::1: refused",
		"no:\n\t::1: refused\n\t::1: refused\n\t127.0.0.1: refused":                   "no: ::1: refused; 127.0.0.1: refused",
		"no:\n\tdb: tls error: server refused TLS connection\n\tdb: no such user":     "no: db: no such user",
		"no:\n\ta: server refused TLS connection\n\tb: server refused TLS connection": "no: a: server refused TLS connection; b: server refused TLS connection",
		"no: db: server refused TLS connection":                                       "no: db: server refused TLS connection",
	} {
		if got := pgtext.OneLine(errors.New(text)); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", text, got, want)
		}
	}
}
