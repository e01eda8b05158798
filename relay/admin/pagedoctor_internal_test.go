package admin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/relay"
)

// The doctor comes every five minutes, and every minute while something fails, and
// not at all while nobody looks.
func TestVisits_Pace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		visits, failed, since := 0, 0, time.Now()
		p := &page{
			server: &Server{life: t.Context()},
			Desk: Desk{
				State: func() relay.State { return relay.State{Since: since} },
				Examine: func(context.Context) *doctor.Report {
					visits++
					<-time.After(time.Millisecond) // who asks for a visit never sees what it finds
					return &doctor.Report{Failed: failed}
				},
			},
		}
		p.visits = lookout{look: p.examine, age: p.untilVisit, timeout: visitTimeout}
		looks := func(d time.Duration) {
			for ; d > 0; d -= time.Second {
				p.checkup(since)
				<-time.After(time.Second)
			}
			synctest.Wait()
		}
		expect := func(when string, want int) {
			t.Helper()
			if visits != want {
				t.Errorf("%s: %d visits, want %d", when, visits, want)
			}
			visits = 0
		}
		looks(15 * time.Minute)
		expect("all is well", 3)
		<-time.After(time.Hour)
		expect("nobody looks", 0)
		failed = 1
		looks(15 * time.Minute)
		expect("something fails", 15)
		looks(30 * time.Second)
		expect("no minute has passed", 1)
		since = time.Now()
		if c := p.checkup(since); c.Report == nil || c.Before == nil {
			t.Errorf("what was found before the phase began is shown as if it were of now: %+v", c)
		}
		looks(2 * time.Second)
		expect("the phase has changed", 1)
		if c := p.checkup(since); c.Before != nil {
			t.Errorf("what was found since is shown as of before: %+v", c)
		}
		failed = 0
		for range 60 {
			since = time.Now().Add(time.Hour)
			looks(time.Second)
		}
		expect("the phase changes all the time", 6)
	})
}
