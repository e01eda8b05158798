package admin

import (
	"fmt"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
)

// Version is that of the JSON form of a [Verdict]. It changes when a reader would
// break.
const Version = 1

// Verdict is the answer to a question about the health of a relay.
type Verdict struct {
	Version int         `json:"version"`
	OK      bool        `json:"ok"`
	Phase   relay.Phase `json:"phase"`
	Since   time.Time   `json:"since"`
	At      time.Time   `json:"at"`
	// Reasons say why not.
	Reasons []Finding `json:"reasons"`
	// Warnings are what a person should look at although the answer is yes.
	Warnings []Finding `json:"warnings"`
}

// Finding is one thing that is not as it should be.
type Finding struct {
	// Code says what it is; docs/operations.md lists the codes.
	Code string `json:"code"`
	// Text is for people, on one line; so is Hint, which says what to do, if
	// anybody knows.
	Text string `json:"text"`
	Hint string `json:"hint"`
	// Since is when it began, if that is known.
	Since *time.Time `json:"since"`
}

// examiner looks at a state and collects what it finds.
type examiner struct {
	cfg    *Config
	state  *relay.State
	report *status.Report // nil if nobody knows what the database says
	Verdict
}

func newExaminer(cfg *Config, state *relay.State) *examiner {
	return &examiner{cfg: cfg, state: state, Verdict: Verdict{
		Version: Version, Phase: state.Phase, Since: state.Since, At: state.At,
		Reasons: []Finding{}, Warnings: []Finding{},
	}}
}

// fail adds a reason why the answer is no.
func (e *examiner) fail(code string, since *time.Time, hint, format string, args ...any) {
	e.Reasons = append(e.Reasons, finding(code, since, hint, format, args))
}

// warn adds a warning.
func (e *examiner) warn(code string, since *time.Time, hint, format string, args ...any) {
	e.Warnings = append(e.Warnings, finding(code, since, hint, format, args))
}

func finding(code string, since *time.Time, hint, format string, args []any) Finding {
	return Finding{Code: code, Since: since, Hint: oneLine(hint), Text: oneLine(fmt.Sprintf(format, args...))}
}

// verdict is what was found.
func (e *examiner) verdict() Verdict {
	e.OK = len(e.Reasons) == 0
	return e.Verdict
}

// age is how long ago something was; 0 if it never was.
func (e *examiner) age(at *time.Time) time.Duration {
	if at == nil {
		return 0
	}
	return max(0, e.state.At.Sub(*at))
}

// ago is an age for people.
func (e *examiner) ago(at *time.Time) time.Duration { return e.age(at).Round(time.Second) }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
