package cdc

import (
	"testing"
	"testing/synctest"
	"time"
)

// At a moderate rate nothing is held back; in a flood messages gather; after it
// they do not.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p pace
		paused := func() bool {
			before := time.Now()
			p.gather()
			return time.Since(before) > 0
		}
		for range 100 {
			time.Sleep(2 * time.Millisecond) //nolint:forbidigo // the time of the bubble
			p.batch(1, time.Now())
			if paused() {
				t.Fatal("a pause at 500 batches a second")
			}
		}
		for range gatherAfter {
			p.batch(1, time.Now())
		}
		if !paused() {
			t.Fatal("no pause in a flood")
		}
		for range 10 {
			p.batch(batchRows, time.Now())
			if !paused() {
				t.Fatal("no pause while the flood goes on")
			}
		}
		p.batch(gatherLeast-1, time.Now())
		if paused() {
			t.Fatal("a pause after the flood")
		}
	})
}
