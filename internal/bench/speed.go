package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Speed is how fast messages went out.
type Speed struct {
	// Rate is the messages a second.
	Rate float64 `json:"rate"`
	// PerCore is the same for each core that other programs left to the
	// benchmark: on a machine that is shared, the one figure that can be held
	// against that of another minute. Waiting counts as time that was left.
	PerCore float64 `json:"per_core"`
}

// meter measures a speed between two moments.
type meter struct {
	began    time.Time
	messages int
	others   time.Duration
}

func newMeter(messages int) (meter, error) {
	others, err := othersTime()
	return meter{began: time.Now(), messages: messages, others: others}, err
}

// read returns the speed since the meter was made.
func (m meter) read(messages int) (s Speed, err error) {
	others, err := othersTime()
	if err != nil {
		return s, err
	}
	took := time.Since(m.began)
	n := float64(messages - m.messages)
	left := took*time.Duration(runtime.NumCPU()) - (others - m.others)
	return Speed{Rate: n / took.Seconds(), PerCore: n / max(left, time.Millisecond).Seconds()}, nil
}

// tickTime is the unit of CPU time in proc_stat(5) and proc_pid_stat(5), which
// is the same on every Linux that Go runs on.
const tickTime = 10 * time.Millisecond

// othersTime is the CPU time that programs other than this one and its children
// have had since the machine started; 0 where there is no /proc.
func othersTime() (time.Duration, error) {
	if runtime.GOOS != "linux" {
		return 0, nil
	}
	all, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(all), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal ...
	if len(fields) < 9 {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	busy := time.Duration(0)
	for i, text := range fields[1:9] {
		ticks, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if name := i + 1; name != 4 && name != 5 { // idle, iowait
			busy += time.Duration(ticks) * tickTime
		}
	}
	return busy - familyTime(os.Getpid()), nil
}

// familyTime is the CPU time of a process and all that it has started, directly
// or not.
func familyTime(root int) (total time.Duration) {
	parents, times := map[int]int{}, map[int]time.Duration{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, parent, took, ok := parseStat(string(text))
		if ok {
			parents[pid], times[pid] = parent, took
		}
	}
	for pid, took := range times {
		for ancestor, found := pid, true; found; ancestor, found = parents[ancestor] {
			if ancestor == root {
				total += took
				break
			}
		}
	}
	return total
}

// parseStat reads a line of proc_pid_stat(5): the time is that of the process
// and of those of its children that have ended.
func parseStat(line string) (pid, parent int, took time.Duration, ok bool) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')') // the name between may hold anything
	if open < 0 || end < open {
		return 0, 0, 0, false
	}
	fields := strings.Fields(line[end+1:]) // state, parent, ...; utime is the 12th
	if len(fields) < 15 {
		return 0, 0, 0, false
	}
	pid, pidErr := strconv.Atoi(strings.TrimSpace(line[:open]))
	parent, parentErr := strconv.Atoi(fields[1])
	for _, text := range fields[11:15] {
		ticks, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, 0, 0, false
		}
		took += time.Duration(ticks) * tickTime
	}
	return pid, parent, took, pidErr == nil && parentErr == nil
}
