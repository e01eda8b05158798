package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Account is what the demo comes to: the facts of all parties, line by line.
type Account struct {
	// Postgres is the server's version.
	Postgres string
	// Load is how long the shop sold, Seed what its choices came from.
	Load time.Duration
	Seed uint64
	// Sections are the lines in the order in which a person reads them.
	Sections [][]Line
}

// Line is one figure and whether it is as it must be.
type Line struct {
	// ID is the name in JSON, Label the one for people.
	ID, Label string
	Value     int64
	// Checked lines hold or do not; the others only tell.
	Checked bool
	// Problem says what does not hold; empty if all is well.
	Problem string
	// Note says what a figure means that is as it must be.
	Note string
}

// settle draws the account of the facts.
func settle(f facts) [][]Line {
	l := newLedger(f)
	account := make([][]Line, len(sections))
	for i, section := range sections {
		for _, f := range section {
			line := Line{ID: f.id, Label: f.label, Value: f.value(l), Checked: f.check != nil, Note: f.note}
			if line.Checked {
				line.Problem = f.check(l)
			}
			account[i] = append(account[i], line)
		}
	}
	return account
}

// Holds reports whether every line is as it must be.
func (a *Account) Holds() bool { return a.problem() == nil }

// problem names the lines that do not hold; nil if all do.
func (a *Account) problem() error {
	var problems []error
	for _, section := range a.Sections {
		for _, line := range section {
			if line.Problem != "" {
				problems = append(problems, fmt.Errorf("%s: %s: %s", line.Label, grouped(line.Value), line.Problem))
			}
		}
	}
	if problems == nil {
		return nil
	}
	return fmt.Errorf("the account does not hold:\n%w", errors.Join(problems...))
}

// MarshalJSON writes the account for machines.
func (a *Account) MarshalJSON() ([]byte, error) {
	type problem struct {
		Figure  string `json:"figure"`
		Problem string `json:"problem"`
	}
	document := struct {
		SchemaVersion int              `json:"schema_version"`
		Holds         bool             `json:"holds"`
		Postgres      string           `json:"postgres"`
		Seconds       float64          `json:"seconds"`
		Seed          uint64           `json:"seed"`
		Figures       map[string]int64 `json:"figures"`
		Problems      []problem        `json:"problems"`
	}{
		SchemaVersion: 1, Holds: a.Holds(), Postgres: a.Postgres, Seconds: a.Load.Seconds(), Seed: a.Seed,
		Figures: map[string]int64{}, Problems: []problem{},
	}
	for _, section := range a.Sections {
		for _, line := range section {
			document.Figures[line.ID] = line.Value
			if line.Problem != "" {
				document.Problems = append(document.Problems, problem{line.ID, line.Problem})
			}
		}
	}
	return json.Marshal(document)
}
