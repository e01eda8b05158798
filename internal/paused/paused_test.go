package paused_test

import (
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/paused"
)

// What is known of a pause is told, and what others wrote moves no cursor.
func TestNote_Words(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 7, 28, 30, 0, time.UTC)
	for want, note := range map[string]paused.Note{
		"":                           {},
		"since 2026-03-01T07:28:30Z": {At: &at},
		"by oncall":                  {By: "oncall"},
		"ticket 8":                   {Reason: "ticket 8"},
		"since 2026-03-01T07:28:30Z by oncall: ticket 8": {At: &at, By: "oncall", Reason: "ticket 8"},
		"since 2026-03-01T07:28:30Z: ticket 8":           {At: &at, Reason: "ticket 8"},
		"by on call : ticket 8 [31m, caf\u00e9":          {By: "on\ncall\u009b", Reason: "ticket 8\x1b[31m, caf\u00e9"},
	} {
		if got := note.Words(paused.Moment); got != want {
			t.Errorf("%+v: %q, want %q", note, got, want)
		}
		told := want
		if told == "" {
			told = "by somebody, and nobody noted whom"
		}
		if got := note.Told(paused.Moment); got != told {
			t.Errorf("%+v: %q, want %q", note, got, told)
		}
	}
}
