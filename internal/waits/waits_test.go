package waits_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

func TestBackoff_DoublesUpToItsEnd(t *testing.T) {
	t.Parallel()
	b := waits.Backoff{Least: 250 * time.Millisecond, Most: 30 * time.Second}
	for _, milliseconds := range []int{250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000} {
		end := time.Duration(milliseconds) * time.Millisecond
		if got := b.Next(); got <= 0 || got > end {
			t.Errorf("a wait of %v, want more than 0 and at most %v", got, end)
		}
	}
	b.Reset()
	if got := b.Next(); got > 250*time.Millisecond {
		t.Errorf("a wait of %v after a reset", got)
	}
}

func TestAround(t *testing.T) {
	t.Parallel()
	var below, above bool
	for range 1000 {
		got := waits.Around(time.Minute, 0.1)
		if got < 54*time.Second || got > 66*time.Second {
			t.Fatalf("%v is not within a tenth of a minute", got)
		}
		below = below || got < time.Minute
		above = above || got > time.Minute
	}
	if !below || !above {
		t.Errorf("only one side: below %v, above %v", below, above)
	}
}

func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if !waits.Sleep(t.Context(), time.Minute) || time.Since(begun) != time.Minute {
			t.Errorf("it came back after %v, or says that the context ended", time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun = time.Now()
		if waits.Sleep(ctx, time.Minute) || time.Since(begun) != time.Second {
			t.Errorf("it came back after %v, or says that the context lasted", time.Since(begun))
		}
	})
}
