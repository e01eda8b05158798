package pgtext_test

import (
	"errors"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// A connection that is broken off again and again is one trouble.
func TestSame(t *testing.T) {
	t.Parallel()
	const to = "connect for checks: failed to connect to `user=u database=d`: 127.0.0.1:5432 (127.0.0.1): "
	want := to + "connection broken off"
	for _, text := range []string{
		"failed to receive message: unexpected EOF",
		"failed to receive message: read tcp 127.0.0.1:37262->127.0.0.1:5432: read: connection reset by peer",
		"failed to receive message: read tcp [::1]:37302->[::1]:5432: read: connection reset by peer",
		"failed to write startup message: write tcp 127.0.0.1:37310->127.0.0.1:5432: write: broken pipe",
	} {
		if got := pgtext.Same(errors.New(to + text)); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	refused := errors.New(to + "dial error: dial tcp 127.0.0.1:5432: connect: connection refused")
	if got := pgtext.Same(refused); got != refused.Error() {
		t.Errorf("another trouble became %q", got)
	}
}
