package judge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/relaybin"
)

// relays are the processes that compete for one slot.
type relays struct {
	program string
	env     map[string]string
	folder  string
	report  *Report

	mu      sync.Mutex
	running [2]*relaybin.Process
	started int
}

// start starts the relay of a place.
func (s *relays) start(place int) error {
	p, err := relaybin.Start(s.program, s.env, "run")
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[place] = p
	s.started++
	s.report.fault("relay started", fmt.Sprintf("place %d, pid %d", place, p.PID()))
	return nil
}

func (s *relays) at(place int) *relaybin.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[place]
}

// kill ends the relay of a place without a word.
func (s *relays) kill(place int) {
	p := s.at(place)
	s.alive(p)
	_ = p.Kill()
	s.bury(place, p)
}

// stopPatience is longer than a relay may take to stop.
const stopPatience = 60 * time.Second

// stop ends the relay of a place in good order.
func (s *relays) stop(ctx context.Context, place int) {
	p := s.at(place)
	s.alive(p)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	begun := time.Now()
	code, err := p.Stop(ctx)
	switch {
	case err != nil:
		s.report.violate("stop", "pid %d did not stop within %v", p.PID(), stopPatience)
		_ = p.Kill()
	case code != 0:
		s.report.violate("stop", "pid %d: exit code %d after a stop, after %v", p.PID(), code, time.Since(begun))
	}
	s.bury(place, p)
}

// alive notes a relay that ended although nobody asked it to.
func (s *relays) alive(p *relaybin.Process) {
	select {
	case <-p.Done():
		s.report.violate("ended", "pid %d ended by itself", p.PID())
	default:
	}
}

// bury reads the log of a relay that has ended, and keeps it as a file.
func (s *relays) bury(place int, p *relaybin.Process) {
	text := p.Log().Text()
	for _, sign := range []string{"DATA RACE", "panic:", "goroutine 1 [", "fatal error:"} {
		if strings.Contains(text, sign) {
			s.report.violate("log", "pid %d wrote %q", p.PID(), sign)
		}
	}
	// A dropped slot hides messages; else the stream shows all, and an alarm is false.
	if strings.Contains(text, "messages recovered that the stream did not show") && !s.report.happened("slot dropped") {
		s.report.violate("alarm", "pid %d recovered messages that the stream should have shown", p.PID())
	}
	name := filepath.Join(s.folder, fmt.Sprintf("relay-%d-%d.log", place, p.PID()))
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		s.report.violate("judge", "%v", err)
	}
}

// measure notes the memory and the descriptors of the relays that run.
func (s *relays) measure() {
	for place := range s.running {
		p := s.at(place)
		if p == nil {
			continue
		}
		// A process that has just ended has neither.
		if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID())); err == nil {
			s.report.raise(&s.report.MaxRSS, peak(string(status)))
		}
		if files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID())); err == nil {
			s.report.raise(&s.report.MaxFiles, int64(len(files)))
		}
	}
}

// peak is the largest resident memory in bytes, from a process's status.
func peak(status string) int64 {
	_, rest, found := strings.Cut(status, "VmHWM:")
	fields := strings.Fields(rest)
	if !found || len(fields) == 0 {
		return 0
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}
