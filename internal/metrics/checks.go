package metrics

import "github.com/outbox-relay/outbox-relay/internal/verify"

var checks = section{title: "The daily check"}

var (
	famChecked = checks.gauge("verify_last_timestamp_seconds",
		"When this relay last proved from the tables that every message has one outcome or is on its way; 0 if it has not, as on a standby.",
		"It does so ten minutes after it has begun to move messages, and then once in `RELAY_VERIFY_INTERVAL`.")
	famCheckDue = checks.gauge("verify_due_timestamp_seconds",
		"When the next check is to begin, or was. Missing on a standby, and without a daily check.",
		"In the past while a check runs or fails; the log says why (`outbox cannot be checked`).")
	famCheckDuration = checks.gauge("verify_duration_seconds",
		"How long the last check took; it rests for most of that time. Missing without one.", "")
	famCheckMessages = checks.gauge("verify_messages",
		"Messages at which the last check looked. Missing without one.", "")
	famCheckFaults = checks.gauge("verify_fault_messages",
		"Messages that the last check found at fault, by kind. Missing without one.",
		"`outbox-relay verify` names them and says what to do. `unaccounted` have no outcome, and nothing will find them before a relay starts; the others are the work of somebody who changed the tables.", "kind")
	famCheckFailures = checks.counter("verify_failures_total",
		"Checks that could not be made.", "The log says why; they are tried again.")
)

// checks exports the last check.
func (m *Metrics) checks(to sink) {
	last := m.verified()
	to.count(famCheckFailures, last.Failures)
	if !last.Due.IsZero() {
		to.put(famCheckDue, unix(&last.Due))
	}
	r := last.Report
	if r == nil {
		to.put(famChecked, 0)
		return
	}
	to.put(famChecked, unix(&last.Ended))
	to.put(famCheckDuration, r.Seconds)
	to.put(famCheckMessages, float64(r.Messages))
	for _, kind := range verify.Kinds {
		to.put(famCheckFaults, float64(r.Faults[kind]), string(kind))
	}
}
