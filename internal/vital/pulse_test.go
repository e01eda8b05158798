package vital_test

import (
	"errors"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/vital"
)

func TestPulse_BusyFromBeginToEnd(t *testing.T) {
	t.Parallel()
	var p vital.Pulse
	if !p.Busy().IsZero() || !p.Turned().IsZero() {
		t.Errorf("the zero Pulse is busy since %s and turned at %s", p.Busy(), p.Turned())
	}
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	p.Begin(at(1))
	if !p.Busy().Equal(at(1)) || !p.Turned().IsZero() {
		t.Errorf("after Begin it is busy since %s and turned at %s", p.Busy(), p.Turned())
	}
	p.Turn(at(2))
	if !p.Busy().Equal(at(2)) || !p.Turned().Equal(at(2)) {
		t.Errorf("after Turn it is busy since %s and turned at %s", p.Busy(), p.Turned())
	}
	p.End(at(3))
	if !p.Busy().IsZero() || !p.Turned().Equal(at(3)) {
		t.Errorf("after End it is busy since %s and turned at %s", p.Busy(), p.Turned())
	}
}

func TestPulse_TroubleLastsFromTheFirstErrorToTheNextSuccess(t *testing.T) {
	t.Parallel()
	var p vital.Pulse
	first, second := errors.New("first"), errors.New("second")
	p.Note(time.Unix(1, 0), nil)
	if p.Trouble() != nil {
		t.Errorf("trouble after a success: %v", p.Trouble())
	}
	p.Note(time.Unix(2, 0), first)
	p.Note(time.Unix(3, 0), second)
	if got := p.Trouble(); got == nil || !errors.Is(got.Err, second) || !got.Since.Equal(time.Unix(2, 0)) {
		t.Errorf("trouble is %+v, want the second error since the first", got)
	}
	p.Note(time.Unix(4, 0), nil)
	if p.Trouble() != nil {
		t.Errorf("trouble after its end: %v", p.Trouble())
	}
}
