package relaybin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Line is one line of a log.
type Line struct {
	// Text is the line as it was written.
	Text string
	// Fields holds the members of a line that is a JSON object; other lines
	// have none.
	Fields map[string]any
}

// Message is the constant text of the line.
func (l Line) Message() string { return l.text("msg") }

// Level is the level of the line.
func (l Line) Level() string { return l.text("level") }

func (l Line) text(key string) string {
	s, _ := l.Fields[key].(string)
	return s
}

// Log takes a log apart while others wait for a certain line. The zero Log is
// empty. A program that runs inside the test may write to one as well.
type Log struct {
	mu      sync.Mutex
	partial []byte        // a line whose end has not come
	lines   []Line        // the lines so far
	ended   bool          // there will be no more
	more    chan struct{} // closed at the next change; made by who waits
}

// Write implements io.Writer.
func (l *Log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, text...)
	for {
		line, rest, found := bytes.Cut(l.partial, []byte("\n"))
		if !found {
			break
		}
		l.lines = append(l.lines, parse(string(line)))
		l.partial = slices.Clone(rest)
	}
	l.changed()
	return len(text), nil
}

func parse(text string) Line {
	line := Line{Text: text}
	// What is not JSON (a panic, a line for people) has no fields.
	_ = json.Unmarshal([]byte(text), &line.Fields)
	return line
}

// End says that nothing more will be written.
func (l *Log) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.partial) > 0 {
		l.lines = append(l.lines, parse(string(l.partial)))
		l.partial = nil
	}
	l.ended = true
	l.changed()
}

// changed wakes who waits. The caller holds mu.
func (l *Log) changed() {
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
}

// Lines is every line so far.
func (l *Log) Lines() []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

var errEnded = errors.New("the log has ended")

// Text is everything that was written, in whole lines.
func (l *Log) Text() string {
	var b strings.Builder
	for _, line := range l.Lines() {
		b.WriteString(line.Text + "\n")
	}
	return b.String()
}

// Await returns the first line, from line number from on, for which match holds,
// and its number. It waits until there is one, the log ends or ctx does.
func (l *Log) Await(ctx context.Context, from int, match func(Line) bool) (Line, int, error) {
	for {
		news, ended, more := l.since(from)
		for i, line := range news {
			if match(line) {
				return line, from + i, nil
			}
		}
		if ended {
			return Line{}, 0, fmt.Errorf("wait for a log line: %w", errEnded)
		}
		from += len(news)
		select {
		case <-more:
		case <-ctx.Done():
			return Line{}, 0, fmt.Errorf("wait for a log line: %w", context.Cause(ctx))
		}
	}
}

// since returns the lines from a number on, whether they are the last ones, and
// a channel that is closed when there may be more.
func (l *Log) since(from int) (news []Line, ended bool, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return slices.Clone(l.lines[min(from, len(l.lines)):]), l.ended, l.more
}
