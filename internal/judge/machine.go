package judge

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

const (
	heartbeat = 100 * time.Millisecond
	// missed is how late a heartbeat may be.
	missed = 250 * time.Millisecond
	// slowUsual is how much slower than alone a process may be on a machine that
	// is not overloaded, and mostOverload what overload multiplies bounds by at
	// most. It is measured over the last slowWindow seconds.
	slowUsual    = 2
	mostOverload = 10
	slowWindow   = 10
)

// feelMachine notes when the judge itself had to wait for the processor: then
// the relays may have had to as well, and no bound on time holds. And it follows
// how slow the machine is all the time.
func (r *run) feelMachine(ctx context.Context) {
	slow := slowness{}
	for beat, last := 0, time.Now(); waits.Sleep(ctx, heartbeat); beat, last = beat+1, time.Now() {
		if late := time.Since(last) - heartbeat; late > missed {
			r.history.stalled("the judge waited for the processor", late)
		}
		if beat%int(time.Second/heartbeat) == 0 {
			overload := min(mostOverload, slow.measure(r.relays.pids())/slowUsual)
			r.report.load.Store(math.Float64bits(overload))
			raise(r.report, &r.report.MaxOverload, overload)
		}
	}
}

// slowness follows for how long the threads of processes wait for a processor
// while they could run.
type slowness struct {
	last   map[int]share
	window []share // one of each second
}

// share is the time that threads ran, and that they waited for a processor.
type share struct{ ran, waited float64 }

// measure is how much slower than alone the processes were in the window; 1 if
// that is not known, as on everything but Linux.
func (s *slowness) measure(pids []int) float64 {
	now, second := map[int]share{}, share{}
	for _, pid := range pids {
		now[pid] = shareOf(pid)
		if before, known := s.last[pid]; known {
			second.ran += max(0, now[pid].ran-before.ran)
			second.waited += max(0, now[pid].waited-before.waited)
		}
	}
	s.last = now
	s.window = append(s.window, second)
	s.window = s.window[max(0, len(s.window)-slowWindow):]
	var all share
	for _, one := range s.window {
		all.ran += one.ran
		all.waited += one.waited
	}
	if all.ran == 0 {
		return 1
	}
	return 1 + all.waited/all.ran
}

// shareOf adds up the threads of a process.
func shareOf(pid int) (all share) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is a good one
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		var one share
		if _, err := fmt.Sscan(string(text), &one.ran, &one.waited); err == nil {
			all.ran += one.ran
			all.waited += one.waited
		}
	}
	return all
}
