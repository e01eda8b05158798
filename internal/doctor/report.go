package doctor

import (
	"fmt"

	"github.com/outbox-relay/outbox-relay/internal/plural"
)

// Status is what came of a check.
type Status string

// The statuses.
const (
	Pass Status = "pass"
	Warn Status = "warn" // the relay works, but somebody should look
	Fail Status = "fail" // the relay does not work, or would lose time or messages
	Skip Status = "skip" // could not look; the message says why
)

// Result is one check of a report. Texts that do not apply are empty.
type Result struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	Status Status `json:"status"`
	// Severity is the worst that the check can say: fail or warn.
	Severity Status `json:"severity"`
	Observed string `json:"observed"`
	Expected string `json:"expected"`
	// Message is what is wrong, or why the check was skipped.
	Message string `json:"message"`
	// Remedy is what to do about it.
	Remedy string `json:"remedy"`
	// SQL repairs it; the remedy says who has to run it.
	SQL string `json:"sql"`
	// Safe says that the SQL takes nothing away and stops nobody, so that
	// `doctor --apply --yes` may run it.
	Safe bool `json:"safe"`
	// Docs is where to read more.
	Docs string `json:"docs"`

	statements statements // those of SQL
}

// Report is what the doctor found.
type Report struct {
	SchemaVersion int      `json:"schema_version"`
	Passed        int      `json:"passed"`
	Warnings      int      `json:"warnings"`
	Failed        int      `json:"failed"`
	Skipped       int      `json:"skipped"`
	Checks        []Result `json:"checks"`
}

func (r *Report) add(result Result) {
	r.Checks = append(r.Checks, result)
	switch result.Status {
	case Pass:
		r.Passed++
	case Warn:
		r.Warnings++
	case Fail:
		r.Failed++
	case Skip:
		r.Skipped++
	}
}

// status returns what came of a check, and nothing if it has not run.
func (r *Report) status(id string) Status {
	for _, result := range r.Checks {
		if result.ID == id {
			return result.Status
		}
	}
	return ""
}

// Summary is the report in a few words.
func (r *Report) Summary() string {
	return fmt.Sprintf("%d passed, %s, %d failed, %d skipped", r.Passed, plural.Of(r.Warnings, "warning", "warnings"), r.Failed, r.Skipped)
}
