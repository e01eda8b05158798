package status

import (
	"testing"
	"time"
)

// A row without a place in the WAL has a time alone.
func TestRelay_Recorded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for lsn, want := range map[string]string{"0/4711": "0/4711, 2.0 s ago", "": "2.0 s ago"} {
		if got := (&Relay{ConfirmedLSN: lsn, UpdatedAt: now.Add(-2 * time.Second)}).recorded(now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Who may end a session that hangs is said with the statement.
func TestSilence(t *testing.T) {
	t.Parallel()
	const want = ", but the server has heard nothing from it for 40.0 s: if that relay hangs or is gone, end its session, " +
		"as the relay's role or an administrator: select pg_terminate_backend(7)"
	if got := silence(new(40.0), new(7)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, heard := range []*float64{nil, new(29.0)} {
		if got := silence(heard, new(7)); got != "" {
			t.Errorf("got %q", got)
		}
	}
}
