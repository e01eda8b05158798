package relay

import (
	"testing"
	"time"
)

func TestBackoff_GrowsAndIsCapped(t *testing.T) {
	const least, most = 200 * time.Millisecond, 30 * time.Second
	for n, span := range []time.Duration{least, 2 * least, 4 * least, 8 * least} {
		for range 100 {
			if got := backoff(n+1, least, most); got < span/2 || got > span {
				t.Fatalf("backoff(%d) = %s, want within %s and %s", n+1, got, span/2, span)
			}
		}
	}
	for _, n := range []int{20, 100, 1 << 30} {
		if got := backoff(n, least, most); got < most/2 || got > most {
			t.Errorf("backoff(%d) = %s, want within %s and %s", n, got, most/2, most)
		}
	}
}

// HTTP-13: waits are spread, so that lanes do not come back together.
func TestBackoff_IsSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[backoff(5, time.Second, time.Minute)] = true
	}
	if len(seen) < 90 {
		t.Errorf("%d different waits of 100", len(seen))
	}
}

func TestPause_IsNeverShorterThanAsked(t *testing.T) {
	for range 1000 {
		if got := pause(4 * time.Second); got < 4*time.Second || got > 4400*time.Millisecond {
			t.Fatalf("pause(4s) = %s", got)
		}
	}
}
