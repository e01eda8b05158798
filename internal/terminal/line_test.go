package terminal_test

import (
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/terminal"
)

func TestLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                    "",
		"ticket 8, grün":      "ticket 8, grün",
		"two\nlines\tand\x00": "two lines and ",
		"\x1b[2J\x7f\u009b2J": " [2J  2J",
	} {
		if got := terminal.Line(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
