package infrai

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestDeadlines_EndAfterTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDeadlines(10 * time.Second)
		began := time.Now()
		c := d.join(t.Context(), began)
		<-c.Done()
		if took := time.Since(began); took < 10*time.Second || took > 10500*time.Millisecond {
			t.Errorf("ended after %s, want 10s to 10.5s", took)
		}
		if err := context.Cause(c); !errors.Is(err, context.DeadlineExceeded) || err.Error() != "no whole answer within 10s" {
			t.Errorf("cause %v", err)
		}
		d.leave(c)
	})
}

func TestDeadlines_ShareForAShortWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDeadlines(10 * time.Second)
		defer d.close()
		first := d.join(t.Context(), time.Now())
		if d.join(t.Context(), time.Now()) != first {
			t.Error("two requests of one moment do not share")
		}
		<-time.After(501 * time.Millisecond)
		later := d.join(t.Context(), time.Now())
		if later == first {
			t.Error("a request half a second later shares")
		}
		d.leave(first)
		if first.Err() != nil {
			t.Error("a context ended while it was in use")
		}
		d.leave(first)
		if first.Err() == nil {
			t.Error("a context that nobody uses still lives")
		}
		d.leave(later)
		if later.Err() != nil {
			t.Error("the current context ended, although requests may join")
		}
	})
}

func TestDeadlines_EndWithTheirOwnParent(t *testing.T) {
	t.Parallel()
	d := newDeadlines(time.Hour)
	defer d.close()
	one, cancelOne := context.WithCancel(t.Context())
	two, cancelTwo := context.WithCancel(t.Context())
	defer cancelTwo()
	a, b := d.join(one, time.Now()), d.join(two, time.Now())
	cancelOne()
	if a.Err() == nil {
		t.Error("the context outlives its parent")
	}
	if b.Err() != nil {
		t.Error("the context ended with another parent")
	}
	d.leave(a)
	d.leave(b)
}
