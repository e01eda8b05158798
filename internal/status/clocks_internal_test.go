package status

import (
	"testing"
	"time"
)

// What lies between question and answer proves nothing.
func TestAhead(t *testing.T) {
	t.Parallel()
	asked := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	answered := asked.Add(100 * time.Millisecond)
	for server, want := range map[time.Duration]time.Duration{
		0: 0, 100 * time.Millisecond: 0, 50 * time.Millisecond: 0,
		1100 * time.Millisecond: time.Second, -2 * time.Second: -2 * time.Second,
	} {
		if got := ahead(asked.Add(server), asked, answered); got != want {
			t.Errorf("the server says %s after the question: got %s, want %s", server, got, want)
		}
	}
}
