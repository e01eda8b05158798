package relay

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The oldest one is known whatever comes and goes, in whatever order.
func TestAges_KnowTheOldest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var a ages
		var there []int64
		now := int64(1_000_000)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(there) == 0 || rapid.Bool().Draw(t, "comes") {
				now += rapid.Int64Range(0, 3).Draw(t, "seconds")
				a.add(time.Unix(now, 0))
				there = append(there, now)
			} else {
				i := rapid.IntRange(0, len(there)-1).Draw(t, "which")
				a.remove(time.Unix(there[i], 500))
				there = append(there[:i], there[i+1:]...)
			}
			if a.count() != len(there) {
				t.Fatalf("%d messages, want %d", a.count(), len(there))
			}
			var want time.Time
			for _, unix := range there {
				if at := time.Unix(unix, 0); want.IsZero() || at.Before(want) {
					want = at
				}
			}
			if got := a.oldest(); !got.Equal(want) {
				t.Fatalf("the oldest is of %s, want %s", got, want)
			}
		}
		if len(there) == 0 && len(a.seconds) != 0 {
			t.Fatalf("%d seconds are left of nothing", len(a.seconds))
		}
	})
}

// A clock that was set back loses no message.
func TestAges_ClockSetBack(t *testing.T) {
	t.Parallel()
	var a ages
	a.add(time.Unix(100, 0))
	a.add(time.Unix(50, 0))
	a.remove(time.Unix(50, 0))
	if got := a.oldest(); !got.Equal(time.Unix(100, 0)) {
		t.Errorf("the oldest is of %s", got)
	}
	a.remove(time.Unix(100, 0))
	if got := a.oldest(); !got.IsZero() {
		t.Errorf("the oldest is of %s, and there is none", got)
	}
}
