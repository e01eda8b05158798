package status

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-relay/outbox-relay/internal/terminal"
)

// reasonDeadLetter marks the place of a dead letter that holds its lane.
const reasonDeadLetter = "dead_letter"

// Next says when messages that wait for a reason are tried next: at a time, or when
// what keeps their queues is over.
func (r *Report) Next(reason *Reason) string {
	if reason.Reason == reasonDeadLetter && reason.NextSeconds == nil {
		return "when a person has decided about it"
	}
	free := Reason{Count: reason.Count}
	var whys []string
	kept, listed := map[string]int64{}, int64(0)
	for i := range reason.Queues {
		q := &reason.Queues[i]
		listed += q.Count
		why := r.keeps(q.Queue)
		if why == "" || reason.Reason == "scheduled" && q.NextSeconds != nil && *q.NextSeconds > 0 {
			if q.NextSeconds != nil && (free.NextSeconds == nil || *q.NextSeconds < *free.NextSeconds) {
				free.NextSeconds = q.NextSeconds
			}
			continue
		}
		if kept[why] == 0 {
			whys = append(whys, why)
		}
		kept[why] += q.Count
		free.Count -= q.Count
	}
	if listed < reason.Count {
		free.NextSeconds = reason.NextSeconds
	}
	return together(&free, whys, kept)
}

// nextInText is how many things a text names for which messages wait.
const nextInText = 3

// together says for what some wait, and the rest. Numbers are told if there is more
// than one thing.
func together(free *Reason, whys []string, kept map[string]int64) string {
	if len(whys) == 0 {
		return free.due()
	}
	if len(whys) == 1 && free.Count <= 0 {
		return whys[0]
	}
	slices.SortStableFunc(whys, func(a, b string) int { return int(kept[b] - kept[a]) })
	var texts []string
	for i, why := range whys {
		if i == nextInText {
			texts = append(texts, "others later")
			break
		}
		texts = append(texts, fmt.Sprintf("%d %s", kept[why], why))
	}
	if free.Count > 0 {
		texts = append(texts, fmt.Sprintf("%d %s", free.Count, free.due()))
	}
	return strings.Join(texts, ", ")
}

// due is when messages are tried next that nothing keeps but their time, and what
// is before them.
func (r *Reason) due() string {
	switch {
	case r.NextSeconds == nil:
		return "with its queue or key"
	case *r.NextSeconds <= 0:
		return "due"
	}
	return "in " + age(*r.NextSeconds)
}

// keeps says until when nothing goes to a queue; empty if nothing is known that
// keeps it.
func (r *Report) keeps(queue string) string {
	if slices.Contains(r.PausedQueues, queue) {
		return "when " + terminal.Line(queue) + " is resumed"
	}
	closed := ""
	for i := range r.Breakers {
		switch r.Breakers[i].Queue {
		case "":
			closed = "when the endpoint is back"
		case queue:
			return "when " + terminal.Line(queue) + " is back"
		}
	}
	return closed
}
