package plural_test

import (
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/plural"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 messages", 1: "1 message", 2: "2 messages", -1: "-1 messages"} {
		if got := plural.Of(n, "message", "messages"); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}
