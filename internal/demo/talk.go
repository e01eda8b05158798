package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// talk tells a person what happens: events on lines of their own and, on a
// terminal, the progress on a last line that is written again and again. It is
// safe for concurrent use.
type talk struct {
	out   io.Writer
	live  bool
	paint paint

	mu   sync.Mutex
	last string // what stands on the last line of the terminal
}

const (
	eraseLine = "\r\x1b[K"
	// liveInterval and plainInterval are how often the progress is told.
	liveInterval  = 200 * time.Millisecond
	plainInterval = time.Second
)

func (t *talk) interval() time.Duration {
	if t.live {
		return liveInterval
	}
	return plainInterval
}

// headline begins.
func (t *talk) headline(text string) {
	t.line(t.paint.bold(text) + "\n")
}

// fact tells something about a part of the stage.
func (t *talk) fact(what, format string, args ...any) {
	t.line(fmt.Sprintf("  %s  %s", t.paint.dim(fmt.Sprintf("%-10s", what)), fmt.Sprintf(format, args...)))
}

// event tells what happened, and when after the opening.
func (t *talk) event(at time.Duration, format string, args ...any) {
	t.line(stamp(at) + t.paint.bold(fmt.Sprintf(format, args...)))
}

// progress is how far the messages are.
type progress struct{ committed, accepted, marked, handled int64 }

// progress tells how far everything is.
func (t *talk) progress(at time.Duration, p progress) {
	line := stamp(at) + strings.Join([]string{
		t.count("committed", p.committed), t.count("accepted", p.accepted), t.count("marked", p.marked), t.count("handled", p.handled),
	}, "  ")
	if !t.live {
		t.line(line)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = line
	fmt.Fprint(t.out, eraseLine, line)
}

// count is a number of a width that stays the same up to 99,999.
func (t *talk) count(what string, n int64) string {
	return fmt.Sprintf("%s %6s", t.paint.dim(what), grouped(n))
}

// line writes a line above the progress.
func (t *talk) line(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != "" {
		fmt.Fprint(t.out, eraseLine)
	}
	fmt.Fprintln(t.out, text)
	fmt.Fprint(t.out, t.last)
}

// close takes the progress off the terminal.
func (t *talk) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != "" {
		fmt.Fprint(t.out, eraseLine)
		t.last = ""
	}
}

func stamp(at time.Duration) string { return fmt.Sprintf("  %5.1f s  ", at.Seconds()) }
