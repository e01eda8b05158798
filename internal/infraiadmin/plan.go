package infraiadmin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Action is what a step does.
type Action string

// The actions.
const (
	Create Action = "create" // the queue is not there
	Keep   Action = "keep"   // it is there as it should be, or is taken as it is
	Differ Action = "differ" // it is there with other settings, which no call changes
)

// Step is what provisioning does about one queue.
type Step struct {
	Queue    string   `json:"queue"`
	Action   Action   `json:"action"`
	Settings Settings `json:"settings"` // as they are wanted
	// Differences are settings of a queue that is there.
	Differences []Difference `json:"differences"`
	// Untold are settings that the queue does not tell, so that nobody knows
	// whether they are as they should be.
	Untold []string `json:"untold"`
	// Created is set once this run has created the queue.
	Created bool `json:"created"`

	// asItIs takes a queue that is there with any settings: others may have their
	// dead letters in it too.
	asItIs bool
}

// Difference is a setting that a queue has otherwise.
type Difference struct {
	Setting string `json:"setting"`
	Wanted  any    `json:"wanted"`
	Has     any    `json:"has"`
}

// String tells a difference on one line, safe for a terminal.
func (d Difference) String() string {
	return fmt.Sprintf("%s is %s, wanted %s", d.Setting, value(d.Has), value(d.Wanted))
}

// value writes a value that the queue may have chosen.
func value(v any) string {
	if v, ok := v.(string); ok {
		return strconv.Quote(v)
	}
	text, err := json.Marshal(v)
	if err != nil || len(text) > maxText {
		return "something else"
	}
	return strings.Trim(strconv.Quote(string(text)), `"`)
}

// Plan looks at what is there and says what would be done, in order: the dead
// letter queue comes first, because a queue can only name one that exists. One
// that is there is taken as it is. Plan changes nothing.
func (c *Client) Plan(ctx context.Context, queue string, s Settings) ([]Step, error) {
	if err := s.Validate(queue); err != nil {
		return nil, err
	}
	var plan []Step
	if s.DeadLetterQueue != "" {
		plan = append(plan, Step{Queue: s.DeadLetterQueue, Settings: s.ofDeadLetters(), asItIs: true})
	}
	plan = append(plan, Step{Queue: queue, Settings: s})
	for i := range plan {
		plan[i].Differences, plan[i].Untold = []Difference{}, []string{}
		if err := c.look(ctx, &plan[i]); err != nil {
			return nil, err
		}
	}
	return plan, nil
}

// look fills in what a step has to do.
func (c *Client) look(ctx context.Context, s *Step) error {
	data, exists, err := c.describe(ctx, s.Queue)
	switch {
	case err != nil:
		return err
	case !exists:
		s.Action = Create
		return nil
	}
	s.compare(data)
	s.Action = Keep
	if len(s.Differences) > 0 && !s.asItIs {
		s.Action = Differ
	}
	return nil
}

// compare notes how a queue differs from what is wanted.
func (s *Step) compare(description json.RawMessage) {
	s.Differences, s.Untold = []Difference{}, []string{}
	var has map[string]any
	_ = json.Unmarshal(description, &has) // what is no object tells nothing
	wanted := s.Settings.members()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		switch got, told := has[name]; {
		case !told:
			s.Untold = append(s.Untold, name)
		case got != wanted[name]: // texts, numbers and booleans
			s.Differences = append(s.Differences, Difference{name, wanted[name], got})
		}
	}
}

// Different says that queues are there with other settings than wanted.
type Different struct{ Steps []Step }

// Differences returns an error of type [*Different] if a queue of the plan is
// there with other settings.
func Differences(plan []Step) error {
	var different []Step
	for _, s := range plan {
		if s.Action == Differ {
			different = append(different, s)
		}
	}
	if len(different) == 0 {
		return nil
	}
	return &Different{different}
}

// Error implements error.
func (e *Different) Error() string {
	names := make([]string, len(e.Steps))
	for i, s := range e.Steps {
		names[i] = s.Queue
	}
	return "queue " + strings.Join(names, ", ") + " is there with other settings"
}

// Hint says what to do.
func (e *Different) Hint() string {
	return "no call of the queue changes settings: ask for those that it has, take another name, or delete the queue yourself when it is empty"
}
