// Package paused tells who paused a queue, when and why.
package paused

import (
	"strings"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/outbox-relay/outbox-relay/internal/terminal"
)

// Note is what the row of a queue says about its pause, by the columns of the
// table queues. It is empty for a queue that is not paused.
type Note struct {
	// At is since when the queue is paused; nil if nobody noted it.
	At *time.Time `json:"paused_at"`
	// By is a role, or whom the writer named, and Reason what was given.
	By     string `json:"paused_by"`
	Reason string `json:"paused_reason"`
}

// Columns are those that [Note.Fields] take, of the table queues by its alias. What
// is left of a pause that is over, because nothing cleared it, is left out.
func Columns(alias string) string {
	return strings.ReplaceAll("case when q.paused then q.paused_at end, coalesce(case when q.paused then q.paused_by end, ''), "+
		"coalesce(case when q.paused then q.paused_reason end, '')", "q.", alias+".")
}

// Fields are where the columns go.
func (n *Note) Fields() []any { return []any{&n.At, &n.By, &n.Reason} }

// Words say since when, by whom and why, with a time as clock writes it. What is
// not known is left out. They have no control characters, whoever wrote them.
func (n *Note) Words(clock func(time.Time) string) string {
	var words []string
	if n.At != nil {
		words = append(words, "since "+clock(*n.At))
	}
	if n.By != "" {
		words = append(words, "by "+n.By)
	}
	text := strings.Join(words, " ")
	switch {
	case n.Reason == "":
	case text == "":
		text = n.Reason
	default:
		text += ": " + n.Reason
	}
	return terminal.Line(text)
}

// Told are the words about a queue that is paused, whether anything is known or
// not: they follow "is paused".
func (n *Note) Told(clock func(time.Time) string) string {
	if words := n.Words(clock); words != "" {
		return words
	}
	return "by somebody, and nobody noted whom"
}

// MarshalLogObject writes what is known.
func (n *Note) MarshalLogObject(to zapcore.ObjectEncoder) error {
	if n.At != nil {
		to.AddTime("paused_at", *n.At)
	}
	if n.By != "" {
		to.AddString("paused_by", n.By)
	}
	if n.Reason != "" {
		to.AddString("paused_reason", n.Reason)
	}
	return nil
}

// Moment is a time to the second, for people and for sorting.
func Moment(at time.Time) string { return at.UTC().Format(time.RFC3339) }
