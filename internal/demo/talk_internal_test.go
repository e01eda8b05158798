package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTalk_IntoAFile(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	say := &talk{out: &out}
	say.headline("A demo")
	say.fact("relay", "process %d", 12)
	say.progress(time.Second, progress{1234, 1200, 1100, 1000})
	say.event(1700*time.Millisecond, "relay killed")
	say.close()
	want := `A demo

  relay       process 12
    1.0 s  committed  1,234  accepted  1,200  marked  1,100  handled  1,000
    1.7 s  relay killed
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTalk_OnATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	say := &talk{out: &out, live: true}
	say.progress(time.Second, progress{committed: 1})
	say.progress(2*time.Second, progress{committed: 2})
	say.event(3*time.Second, "relay killed")
	say.progress(4*time.Second, progress{committed: 3})
	say.close()
	say.event(5*time.Second, "done")
	want := []string{
		"    3.0 s  relay killed",
		"    5.0 s  done",
		"",
	}
	if diff := cmp.Diff(want, screen(out.String())); diff != "" {
		t.Errorf("what is left on the screen (-want +got):\n%s", diff)
	}
}

// screen is what a terminal shows of a text: a line that is erased is gone.
func screen(text string) []string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if at := strings.LastIndex(line, eraseLine); at >= 0 {
			lines[i] = line[at+len(eraseLine):]
		}
	}
	return lines
}

func TestTalk_ProgressFitsATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	(&talk{out: &out}).progress(600*time.Second, progress{999_999, 999_999, 999_999, 999_999})
	if n := len(strings.TrimSuffix(out.String(), "\n")); n >= 80 {
		t.Errorf("the line has %d columns", n)
	}
}
