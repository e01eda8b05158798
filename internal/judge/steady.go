package judge

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

const (
	// warmUp is how long a relay takes to reach its size, and windows how long
	// it is looked at after that and at its end: at least so long, and a fifth
	// of its life.
	warmUp    = 20 * time.Second
	minWindow = 15 * time.Second
	// memoryGrowth is what a relay may have grown by at its end. What is needed
	// goes up and down; what is lost stays, and shows in how small it gets.
	memoryGrowth = 24 << 20
	// idleFiles is how many descriptors a relay may have that has nothing to do,
	// and idlePatience how long it may keep connections.
	idleFiles    = 40
	idlePatience = 20 * time.Second
)

// size is what a process took at a time of its life.
type size struct {
	age           time.Duration
	memory, files int64
}

// growth follows the size of a process, from when it took the slot on: one that
// waits for it is small. It is safe for concurrent use.
type growth struct {
	mu    sync.Mutex
	begun time.Time
	sizes []size
}

// begin starts over.
func (g *growth) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begun, g.sizes = time.Now(), nil
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
	g.mu.Lock()
	defer g.mu.Unlock()
	now = size{time.Since(g.begun), bytesOf(string(status), "VmRSS:"), int64(len(files))}
	g.sizes = append(g.sizes, now)
	return now, now.memory > 0
}

// judge compares how small the process got after its start with how small it
// gets now, and says what is wrong.
func (g *growth) judge() (wrong string) {
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
	early, late := smallest(g.sizes, warmUp, warmUp+window), smallest(g.sizes, life-window, life)
	if late > early+memoryGrowth {
		return fmt.Sprintf("after %v it took %d KiB at least, after %v %d KiB", warmUp, early>>10, life.Round(time.Second), late>>10)
	}
	return ""
}

// smallest is the least memory between two ages.
func smallest(sizes []size, from, to time.Duration) int64 {
	least := int64(math.MaxInt64)
	for _, s := range sizes {
		if s.age >= from && s.age <= to {
			least = min(least, s.memory)
		}
	}
	return least
}

// idle waits until no relay has more descriptors than one that has nothing to
// do needs.
func (s *relays) idle(ctx context.Context, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for place := range s.running {
		p, g := s.at(place), s.growths[place]
		for {
			now, _ := g.measure(p.PID())
			if now.files <= idleFiles {
				break
			}
			if !waits.Sleep(ctx, watchPause) {
				s.report.violate("files", "pid %d has %d descriptors %v after the end", p.PID(), now.files, patience)
				break
			}
		}
	}
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

// expected are the errors in a relay's log that the judge's own acts lead to,
// each with the faults of which one has to have happened before; none is needed
// for those without. Messages that the stream did not show are never expected:
// what a new slot does not show, the relay finds before it sends anything.
var expected = map[string][]string{
	"dead letter":                          nil,
	"slot lost, a new one takes its place": {"slot dropped"},
	"the relay has died again and again, one request goes out at a time": {"relay killed", "both relays killed"},
}

// mayWrite reports whether an error was to be expected.
func (r *Report) mayWrite(message string) bool {
	faults, known := expected[message]
	return known && (faults == nil || slices.ContainsFunc(faults, r.happened))
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
		if s.report.mayWrite(message) || slices.Contains(seen, message) {
			continue
		}
		seen = append(seen, message)
		s.report.violate("log", "pid %d: %s", pid, strings.TrimSpace(line))
	}
}
