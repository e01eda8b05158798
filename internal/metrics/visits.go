package metrics

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/waits"
)

var visited = section{title: "The doctor"}

var (
	famCheck = visited.gauge("doctor_check_status",
		"What came of a check of the doctor: 0 is well, 1 warns, 2 fails. Missing where it could not look. The queue is not asked (D48).",
		"docs/doctor.md has the checks by number; `outbox-relay doctor` says what is wrong, and what mends it.", "check")
	famVisit = visited.gauge("doctor_last_timestamp_seconds",
		"When the doctor was here last; 0 before the first time.",
		"It comes a minute after the start, and then each hour; every five minutes while a check fails.")
)

const (
	// visitFirst leaves a relay the time to take the slot, or to make it.
	visitFirst = time.Minute
	// visitEvery is how often the doctor comes, visitSoon how often while a check
	// fails, which somebody may be mending.
	visitEvery = time.Hour
	visitSoon  = 5 * time.Minute
	// visitTimeout bounds a visit. A check by itself ends after 15 s.
	visitTimeout = 2 * time.Minute
)

// visits has the doctor look now and then, so that an alert tells what otherwise
// only a person who looks would find out.
type visits struct {
	examine func(context.Context) *doctor.Report // nil: nobody looks
	seen    atomic.Pointer[visit]                // nil before the first one
}

// visit is what the doctor found, and when it had looked.
type visit struct {
	report *doctor.Report
	at     time.Time
}

// run has the doctor look until ctx ends.
func (v *visits) run(ctx context.Context) {
	if v.examine == nil {
		return
	}
	for wait := visitFirst; waits.Sleep(ctx, wait); wait = v.untilNext() {
		v.look(ctx)
	}
}

func (v *visits) look(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, visitTimeout)
	defer cancel()
	report := v.examine(bounded)
	if ctx.Err() == nil { // what broke off at the end of the process says nothing
		v.seen.Store(&visit{report, time.Now()})
	}
}

func (v *visits) untilNext() time.Duration {
	if seen := v.seen.Load(); seen != nil && seen.report.Failed > 0 {
		return visitSoon
	}
	return visitEvery
}

// checkLevels are the statuses as numbers: the worse, the higher.
var checkLevels = map[doctor.Status]float64{doctor.Pass: 0, doctor.Warn: 1, doctor.Fail: 2}

// doctor exports what the doctor found last.
func (m *Metrics) doctor(to sink) {
	seen := m.visits.seen.Load()
	if seen == nil {
		to.put(famVisit, 0)
		return
	}
	to.put(famVisit, unix(&seen.at))
	for i := range seen.report.Checks {
		check := &seen.report.Checks[i]
		if level, looked := checkLevels[check.Status]; looked {
			to.put(famCheck, level, check.ID)
		}
	}
}
