package relay

import (
	"testing"
	"time"
)

// Rows that go in batches, with nothing in between, have one speed.
func TestSpeedometer_CountsOverBatches(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name         string
		batch        int
		every        time.Duration
		least, most  float64
		readsBetween int
	}{
		{"slow", 1, 100 * time.Millisecond, 9, 11, 7},
		{"fast", 1000, 100 * time.Millisecond, 9000, 11000, 7},
		{"fast, read at every batch only", 1000, 100 * time.Millisecond, 9000, 11000, 1},
		{"large batches, far apart", 2000, time.Second, 1900, 2300, 5},
		{"nothing", 0, time.Second, 0, 0, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var s speedometer
			now := time.Unix(1_000_000, 0)
			var got float64
			for range 100 {
				for range test.readsBetween {
					now = now.Add(test.every / time.Duration(test.readsBetween))
					got = s.perSecond(now)
				}
				for range test.batch {
					s.count()
				}
			}
			if got < test.least || got > test.most {
				t.Errorf("%.1f rows a second, want %.0f to %.0f", got, test.least, test.most)
			}
		})
	}
}
