package status

import (
	"slices"
	"strings"

	"github.com/outbox-relay/outbox-relay/internal/terminal"
)

// Finding is one thing that is not as it should be, as the relay itself sees it: what
// /readyz answers.
type Finding struct {
	// Level is fail for what keeps messages, and warn for what a person should look at.
	Level string `json:"level"`
	Code  string `json:"code"`
	Text  string `json:"text"`
	// Hint says what to do; empty if nobody knows.
	Hint string `json:"hint"`
}

// The levels of a [Finding].
const (
	Fail = "fail"
	Warn = "warn"
)

// Tell adds what a relay has found. It is for who has asked one, before or after
// [Report.Hear].
func (r *Report) Tell(findings []Finding) {
	r.Findings = append([]Finding{}, findings...)
	r.Summary = r.sentence()
}

// toldElsewhere are the codes whose matter the report tells in rows of its own.
var toldElsewhere = []string{"endpoint", "queue", "paused", "unseen", "dead_letters", "slot", "holder_waits"}

// hindrances are the codes of what keeps messages, beside the breakers.
func (r *Report) hindrances() (codes []string) {
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Level == Fail && !slices.Contains(toldElsewhere, f.Code) && !slices.Contains(codes, f.Code) {
			codes = append(codes, f.Code)
		}
	}
	return codes
}

// notReady says what keeps messages; empty if nothing does.
func (r *Report) notReady() string {
	codes := r.hindrances()
	if len(codes) == 0 {
		return ""
	}
	return "not ready (" + terminal.Line(strings.Join(codes, ", ")) + ")"
}

func (r *Report) findingRows() (rows [][2]string) {
	for i := range r.Findings {
		f := &r.Findings[i]
		if slices.Contains(toldElsewhere, f.Code) {
			continue
		}
		text := terminal.Line(f.Text)
		if f.Hint != "" {
			text += " (" + terminal.Line(f.Hint) + ")"
		}
		rows = append(rows, [2]string{f.Level + " " + terminal.Line(f.Code), text})
	}
	return rows
}
