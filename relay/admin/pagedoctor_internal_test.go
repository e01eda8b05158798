package admin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
)

// The doctor comes every five minutes, and every minute while something fails, and
// not at all while nobody looks.
func TestVisits_Pace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		visits, failed := 0, 0
		p := &page{
			server: &Server{life: t.Context()},
			Desk:   Desk{Examine: func(context.Context) *doctor.Report { visits++; return &doctor.Report{Failed: failed} }},
		}
		p.visits = lookout{look: p.examine, age: untilVisit, timeout: visitTimeout}
		looks := func(d time.Duration) {
			for ; d > 0; d -= time.Second {
				p.checkup()
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
	})
}
