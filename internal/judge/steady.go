package judge

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// warmUp is how long a relay takes to reach its size, and windows how long
	// it is looked at after that and at its end: at least so long, and a fifth
	// of its life.
	warmUp    = 20 * time.Second
	minWindow = 15 * time.Second
	// What a relay may have grown by at its end. What is needed goes up and down;
	// what is lost stays, and shows in how small it gets.
	memoryGrowth = 24 << 20
	filesGrowth  = 40
)

// size is what a process took at a time of its life.
type size struct {
	age           time.Duration
	memory, files int64
}

// growth follows the size of a process. It is safe for concurrent use.
type growth struct {
	begun time.Time

	mu    sync.Mutex
	sizes []size
}

// measure reads the size of a process; one that has just ended has none.
func (g *growth) measure(pid int) (now size, ok bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return size{}, false
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return size{}, false
	}
	now = size{time.Since(g.begun), bytesOf(string(status), "VmRSS:"), int64(len(files))}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sizes = append(g.sizes, now)
	return now, now.memory > 0
}

// judge compares how small the process got after its start with how small it
// gets now, and says what is wrong.
func (g *growth) judge(limits bool) (wrong string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.sizes) == 0 {
		return ""
	}
	life := g.sizes[len(g.sizes)-1].age
	window := max(minWindow, life/5)
	if life < warmUp+2*window {
		return ""
	}
	early := smallest(g.sizes, warmUp, warmUp+window)
	late := smallest(g.sizes, life-window, life)
	switch {
	case limits && late.memory > early.memory+memoryGrowth:
		return fmt.Sprintf("after %v it took %d KiB at least, after %v %d KiB", warmUp, early.memory>>10, life.Round(time.Second), late.memory>>10)
	case late.files > early.files+filesGrowth:
		return fmt.Sprintf("after %v it had %d descriptors at least, after %v %d", warmUp, early.files, life.Round(time.Second), late.files)
	}
	return ""
}

// smallest is the least of each figure between two ages.
func smallest(sizes []size, from, to time.Duration) (least size) {
	for _, s := range sizes {
		if s.age < from || s.age > to {
			continue
		}
		if least.age == 0 {
			least = s
		}
		least.memory, least.files = min(least.memory, s.memory), min(least.files, s.files)
	}
	return least
}

// bytesOf is a figure of a process's status, which is in KiB.
func bytesOf(status, label string) int64 {
	_, rest, _ := strings.Cut(status, label)
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}

// expected are the errors in a relay's log that the judge's own acts lead to, and
// the fault that has to have happened before.
var expected = map[string]string{
	"dead letter":                                     "",
	"slot lost, a new one takes its place":            "slot dropped",
	"messages recovered that the stream did not show": "slot dropped",
}

// readLog looks for what a relay should never write.
func (s *relays) readLog(pid int, text string) {
	for _, sign := range []string{"DATA RACE", "panic:", "goroutine 1 [", "fatal error:"} {
		if strings.Contains(text, sign) {
			s.report.violate("log", "pid %d wrote %q", pid, sign)
		}
	}
	var seen []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, `"level":"error"`) {
			continue
		}
		_, message, _ := strings.Cut(line, `"msg":"`)
		message, _, _ = strings.Cut(message, `"`)
		fault, known := expected[message]
		if known && (fault == "" || s.report.happened(fault)) || slices.Contains(seen, message) {
			continue
		}
		seen = append(seen, message)
		s.report.violate("log", "pid %d: %s", pid, strings.TrimSpace(line))
	}
}
