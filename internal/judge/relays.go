package judge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/relaybin"
)

// relays are the processes that compete for one slot.
type relays struct {
	program string
	env     map[string]string
	folder  string
	limits  bool // memory is judged
	report  *Report
	history *history

	following sync.WaitGroup // ends with the processes

	mu      sync.Mutex
	running [2]*relaybin.Process
	growths [2]*growth
}

// start starts the relay of a place.
func (s *relays) start(place int) error {
	p, err := relaybin.Start(s.program, s.env, "run")
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[place], s.growths[place] = p, &growth{begun: time.Now()}
	s.report.fault("relay started", fmt.Sprintf("place %d, pid %d", place, p.PID()))
	s.following.Go(func() { s.follow(p) })
	return nil
}

// follow notes the sessions of a relay until it ends.
func (s *relays) follow(p *relaybin.Process) {
	for from := 0; ; {
		line, number, err := p.Log().Await(context.Background(), from, func(l relaybin.Line) bool { return l.Message() == "session began" })
		if err != nil {
			return // it has ended
		}
		text, _ := line.Fields["time"].(string)
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			s.history.session(s.report.moment(at))
		} else {
			s.report.violate("judge", "a session without a time: %s", line.Text)
		}
		from = number + 1
	}
}

func (s *relays) at(place int) *relaybin.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[place]
}

// pids are the processes of the relays, and the judge's own.
func (s *relays) pids() []int {
	pids := []int{os.Getpid()}
	for place := range s.running {
		if p := s.at(place); p != nil {
			pids = append(pids, p.PID())
		}
	}
	return pids
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

// bury judges a relay that has ended by its size and its log, and keeps the log
// as a file.
func (s *relays) bury(place int, p *relaybin.Process) {
	s.mu.Lock()
	growth := s.growths[place]
	s.mu.Unlock()
	if wrong := growth.judge(); s.limits && wrong != "" {
		s.report.violate("growth", "pid %d: %s", p.PID(), wrong)
	}
	text := p.Log().Text()
	s.readLog(p.PID(), text)
	name := filepath.Join(s.folder, fmt.Sprintf("relay-%d-%d.log", place, p.PID()))
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		s.report.violate("judge", "%v", err)
	}
}

// took notes that the process of a place has the slot.
func (s *relays) took(place int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.growths[place].begin()
}

// measure notes the memory and the descriptors of the relays that run.
func (s *relays) measure() {
	for place := range s.running {
		s.mu.Lock()
		p, growth := s.running[place], s.growths[place]
		s.mu.Unlock()
		if p == nil {
			continue
		}
		if now, ok := growth.measure(p.PID()); ok {
			raise(s.report, &s.report.MaxRSS, now.memory)
			raise(s.report, &s.report.MaxFiles, now.files)
		}
	}
}
