package drill

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Scene begins a part of the drill with a headline.
func (s *Stage) Scene(format string, args ...any) {
	s.Helper()
	s.say("")
	s.say(format, args...)
}

// Say tells what happens.
func (s *Stage) Say(format string, args ...any) {
	s.Helper()
	s.say("  "+format, args...)
}

// Fact is something that was looked at.
type Fact struct {
	text, problem string
}

// Is is the fact that something is what it should be.
func Is[T comparable](what string, got, want T) Fact {
	f := Fact{text: fmt.Sprintf("%s: %v", what, got)}
	if got != want {
		f.problem = fmt.Sprintf("%s: %v, want %v", what, got, want)
	}
	return f
}

// Prove prints a claim, and below it the facts that it rests on, or ends the drill.
func (s *Stage) Prove(claim string, facts ...Fact) {
	s.Helper()
	if len(facts) == 0 {
		s.Fatalf("nothing was looked at for: %s", claim)
	}
	var texts, problems []string
	for _, f := range facts {
		texts = append(texts, f.text)
		if f.problem != "" {
			problems = append(problems, f.problem)
		}
	}
	if len(problems) > 0 {
		s.Fatalf("not proved: %s (%s)", claim, strings.Join(problems, "; "))
	}
	s.proofs++
	s.say("proved: %s", claim)
	for _, line := range wrap(texts, width) {
		s.say("        %s", line)
	}
}

// width is how many characters of facts stand in a line.
const width = 100

// wrap puts texts into lines, with a comma after each but the last.
func wrap(texts []string, width int) (lines []string) {
	line := ""
	for i, text := range texts {
		if i < len(texts)-1 {
			text += ","
		}
		switch {
		case line == "":
			line = text
		case len(line)+1+len(text) > width:
			lines, line = append(lines, line), text
		default:
			line += " " + text
		}
	}
	return append(lines, line)
}

// Await waits until check returns nil, and ends the drill with its last error if
// that takes too long.
func (s *Stage) Await(check func(ctx context.Context) error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, Patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.Fatalf("%v: waited for: %v", context.Cause(ctx), err)
		}
	}
}
