package cdc

import (
	"testing"
	"time"
)

func TestWord(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	at := func(seconds float64) time.Time { return begun.Add(time.Duration(seconds * float64(time.Second))) }
	// The server's clock is an hour ahead, or it is set back meanwhile.
	theirs := func(seconds float64) time.Time { return at(seconds + 3600) }

	tests := map[string]struct {
		do   func(w *word)
		want time.Time
	}{
		"nothing yet":            {func(*word) {}, time.Time{}},
		"held":                   {func(w *word) { w.held(at(1)) }, at(1)},
		"an older proof":         {func(w *word) { w.held(at(2)); w.held(at(1)) }, at(2)},
		"heard without a clock":  {func(w *word) { w.held(at(1)); w.heard(theirs(5), at(5)) }, at(1)},
		"heard just now":         {func(w *word) { w.compare(at(1), theirs(1)); w.heard(theirs(5), at(5.1)) }, at(5)},
		"heard out of a buffer":  {func(w *word) { w.compare(at(1), theirs(1)); w.heard(theirs(5), at(300)) }, at(5)},
		"the clock was put on":   {func(w *word) { w.compare(at(1), theirs(1)); w.heard(theirs(500), at(6)) }, at(6)},
		"the clock was put back": {func(w *word) { w.held(at(4)); w.compare(at(1), theirs(1)); w.heard(theirs(-500), at(6)) }, at(4)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w word
			test.do(&w)
			if got := w.last(); !got.Equal(test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}
