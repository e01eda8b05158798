package admin_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

// healthy is a doctor who finds nothing.
func healthy(context.Context) *doctor.Report { return &doctor.Report{Passed: 1} }

// serveVisited runs a server with the page and this doctor, and returns its
// address.
func serveVisited(t *testing.T, examine func(context.Context) *doctor.Report) string {
	t.Helper()
	return serveVisitedIn(t, idle, examine)
}

// serveVisitedIn is the same for a relay in this state.
func serveVisitedIn(t *testing.T, state func() relay.State, examine func(context.Context) *doctor.Report) string {
	t.Helper()
	s := admin.New(*defaults(), idle, func(context.Context) (*admin.Look, error) { return nil, errors.New("no database") }, zap.NewNop())
	s.AddPage(admin.Desk{
		State: state, Counts: func() relay.Counts { return relay.Counts{} }, Examine: examine,
		Operate: func(context.Context, func(context.Context, *operate.Operator) error) error {
			return errors.New("no database")
		},
	})
	return run(t, s)
}

// theDoctor is the part of the page that has the findings.
func theDoctor(t *testing.T, url string) string {
	t.Helper()
	_, _, page := request(t, "GET", url+"/live", "text/html")
	part := regexp.MustCompile(`(?s)<section id="doctor".*?</section>`).FindString(page)
	if part == "" {
		t.Fatalf("no findings: %s", page)
	}
	return part
}

// What failed comes first, then what warns, each with all that is known of it; what
// was not looked at is there with its reason, what is well is a number.
func TestPage_Doctor(t *testing.T) {
	t.Parallel()
	const hostile = `<script>alert(1)</script>`
	url := serveVisited(t, func(context.Context) *doctor.Report {
		return &doctor.Report{
			Passed: 38, Warnings: 1, Failed: 1, Skipped: 3,
			Checks: []doctor.Result{
				{ID: "D01", Title: "Postgres answers", Status: doctor.Pass, Observed: "what is well"},
				{ID: "D14", Title: "Limit of kept WAL", Status: doctor.Warn, Observed: "no limit", Expected: "a limit", Remedy: "set one", SQL: "alter system set a = 'b';"},
				{ID: "D21", Title: "Publication", Status: doctor.Fail, Message: hostile, Remedy: "`make` it", SQL: "create publication p;\n" + hostile},
				{ID: "D33", Title: "Long transactions", Status: doctor.Skip, Message: "needs pg_read_all_stats"},
				{ID: "D20", Title: "Membership", Status: doctor.Skip, Message: "D21 failed"},
				{ID: "D34", Title: "Old rows", Status: doctor.Skip, Message: "needs pg_read_all_stats"},
			},
		}
	})
	pgtest.Eventually(t, time.Minute, func() error {
		if !strings.Contains(theDoctor(t, url), "D21") {
			return errors.New("the doctor was not here")
		}
		return nil
	})
	got := theDoctor(t, url)
	at := -1
	for _, want := range []string{
		"1 failed", "1 warning", "38 passed",
		"Publication", "D21", "&lt;script&gt;", "<code>make</code> it", "create publication p;\n&lt;script&gt;", `id="copy-D21"`,
		"Limit of kept WAL", "D14", "no limit", "a limit", "set one", "alter system set a = &#39;b&#39;;",
		"D33, D34</span> <span>needs pg_read_all_stats", "D20</span> <span>D21 failed", "As of",
	} {
		next := strings.Index(got, want)
		if next < at {
			t.Errorf("%q is at %d, want it after %d: %s", want, next, at, got)
		}
		at = max(at, next)
	}
	if strings.Contains(got, "what is well") || strings.Contains(got, hostile) {
		t.Errorf("the findings are %s", got)
	}
	if _, _, page := request(t, "GET", url+"/", "text/html"); !strings.Contains(page, `<a href="#doctor">`) {
		t.Error("the first lines do not lead to what failed")
	}
}

// What failed before the relay went on, for instance after an adoption, does not
// stand beside its verdict as if it were of now.
func TestPage_DoctorOfBeforeThePhase(t *testing.T) {
	t.Parallel()
	var goesOn atomic.Bool
	url := serveVisitedIn(t, func() relay.State {
		state := idle()
		state.Since = time.Time{}
		if goesOn.Load() {
			state.Since = time.Now()
		}
		return state
	}, func(ctx context.Context) *doctor.Report {
		if goesOn.Load() {
			<-ctx.Done() // another visit, if it is time for one, finds nothing yet
		}
		return &doctor.Report{Failed: 1, Checks: []doctor.Result{{ID: "D46", Title: "Cluster", Status: doctor.Fail, Message: "it sends nothing here"}}}
	})
	const before, link = "<b>From before <time", `<a href="#doctor">`
	pgtest.Eventually(t, time.Minute, func() error {
		if !strings.Contains(theDoctor(t, url), "D46") {
			return errors.New("the doctor was not here")
		}
		return nil
	})
	_, _, page := request(t, "GET", url+"/", "text/html")
	if strings.Contains(page, before) || !strings.Contains(page, link) {
		t.Errorf("what is of now is shown as of before: %s", page)
	}
	goesOn.Store(true)
	_, _, page = request(t, "GET", url+"/", "text/html")
	if !strings.Contains(page, before) || strings.Contains(page, link) {
		t.Errorf("what is of before is shown as of now: %s", page)
	}
}

// The doctor comes when somebody looks, once, and nobody waits for it.
func TestPage_DoctorComesWhenSomebodyLooks(t *testing.T) {
	t.Parallel()
	var visits atomic.Int32
	begun, end := make(chan struct{}, 1), make(chan struct{})
	url := serveVisited(t, func(ctx context.Context) *doctor.Report {
		visits.Add(1)
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 2*time.Minute {
			t.Errorf("a visit may last until %v", deadline)
		}
		begun <- struct{}{}
		<-end
		return healthy(ctx)
	})
	request(t, "GET", url+"/readyz", "text/plain")
	request(t, "GET", url+"/status", "application/json")
	if n := visits.Load(); n != 0 {
		t.Errorf("%d visits, and nobody looks at the page", n)
	}
	if got := theDoctor(t, url); !strings.Contains(got, "that takes some seconds") {
		t.Errorf("before the first visit is over: %s", got)
	}
	<-begun
	theDoctor(t, url)
	close(end)
	pgtest.Eventually(t, time.Minute, func() error {
		if got := theDoctor(t, url); !strings.Contains(got, "Nothing to mend.") {
			return fmt.Errorf("the findings are %s", got)
		}
		return nil
	})
	if n := visits.Load(); n != 1 {
		t.Errorf("%d visits, want 1", n)
	}
}
