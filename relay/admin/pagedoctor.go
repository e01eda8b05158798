package admin

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
)

const (
	// visitEvery is how often the doctor comes while somebody looks at the page:
	// what it looks at changes rarely, and it asks dozens of questions.
	visitEvery = 5 * time.Minute
	// visitSoon is how often it comes while a check fails, which somebody may be
	// mending.
	visitSoon = time.Minute
	// visitAnew is how long after a visit the next one may be if the relay has
	// changed its phase since, and what was found may be mended.
	visitAnew = 10 * time.Second
	// visitTimeout bounds a visit. A check by itself ends after 15 s.
	visitTimeout = 2 * time.Minute
)

// checkup is what the doctor found when it was here last.
type checkup struct {
	// Report is nil before the first visit is over.
	Report *doctor.Report
	// At is when the visit began.
	At time.Time
	// Before is set to when the phase of the relay began if that was after the
	// visit: what was found then need not be so any more.
	Before *time.Time
	// Findings are the checks that failed, and behind them those that warn.
	Findings []doctor.Result
	Skipped  []skipped
}

// skipped are the checks that could not look, for the same reason.
type skipped struct {
	Reason string
	Checks []string
}

// checkup returns the findings of the last visit, and asks for another when it is
// time. It waits for none. Since is when the phase of the relay began.
func (p *page) checkup(since time.Time) *checkup {
	p.visits.current(p.server.life)
	seen := p.visits.newest()
	if seen == nil {
		return new(checkup)
	}
	report := seen.report.(*doctor.Report)
	c := &checkup{Report: report, At: seen.began}
	if seen.began.Before(since) {
		c.Before = &since
	}
	c.gather(doctor.Fail)
	c.gather(doctor.Warn)
	c.group()
	return c
}

func (p *page) examine(ctx context.Context) (any, error) { return p.Examine(ctx), nil }

// untilVisit is how long after a visit the next one may be.
func (p *page) untilVisit(s *sight) time.Duration {
	state := p.State()
	if s.began.Before(state.Since) {
		return visitAnew
	}
	if s.report.(*doctor.Report).Failed > 0 {
		return visitSoon
	}
	return visitEvery
}

func (c *checkup) gather(status doctor.Status) {
	for i := range c.Report.Checks {
		if c.Report.Checks[i].Status == status {
			c.Findings = append(c.Findings, c.Report.Checks[i])
		}
	}
}

// group puts the skipped checks together by their reasons: in one mode many are
// skipped for the same.
func (c *checkup) group() {
	for i := range c.Report.Checks {
		check := &c.Report.Checks[i]
		if check.Status != doctor.Skip {
			continue
		}
		same := slices.IndexFunc(c.Skipped, func(s skipped) bool { return s.Reason == check.Message })
		if same < 0 {
			same = len(c.Skipped)
			c.Skipped = append(c.Skipped, skipped{Reason: check.Message})
		}
		c.Skipped[same].Checks = append(c.Skipped[same].Checks, check.ID)
	}
}

// Names lists the checks.
func (s *skipped) Names() string { return strings.Join(s.Checks, ", ") }
