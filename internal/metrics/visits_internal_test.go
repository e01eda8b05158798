package metrics

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// The doctor comes after a minute, each hour, and sooner while something is wrong.
func TestVisits_Rhythm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		began, came := time.Now(), []time.Duration{}
		v := &visits{examine: func(context.Context) *doctor.Report {
			came = append(came, time.Since(began))
			return &doctor.Report{Failed: len(came) % 2} // at the first and the third visit
		}}
		done := make(chan struct{})
		go func() { defer close(done); v.run(ctx) }()
		waits.Sleep(ctx, visitFirst+2*visitSoon+visitEvery+time.Second)
		stop()
		<-done
		second := visitFirst + visitSoon
		want := []time.Duration{visitFirst, second, second + visitEvery, second + visitEvery + visitSoon}
		if diff := cmp.Diff(want, came); diff != "" {
			t.Error(diff)
		}
		if seen := v.seen.Load(); seen == nil || seen.report.Failed != 0 || seen.at.Sub(began) != want[3] {
			t.Errorf("the last visit is %+v", seen)
		}
	})
}

// A visit that the end of the process breaks off says nothing.
func TestVisits_End(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	v := &visits{examine: func(context.Context) *doctor.Report {
		stop()
		return &doctor.Report{Failed: 1}
	}}
	v.look(ctx)
	if seen := v.seen.Load(); seen != nil {
		t.Errorf("got %+v", seen)
	}
}
