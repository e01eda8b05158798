package drill

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
)

// program is the TB of a drill that is no test.
type program struct {
	out io.Writer

	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

var _ TB = (*program)(nil)

// play calls f as package testing calls a test, and then what f wants to be
// cleaned up, the last first.
func (p *program) play(f func()) {
	p.alone(f)
	for p.left() {
		p.alone(p.takeCleanup)
	}
}

// alone calls f in a goroutine that Fatalf may end.
func (p *program) alone(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if value := recover(); value != nil {
				p.Errorf("panic: %v\n%s", value, debug.Stack())
			}
		}()
		f()
	}()
	<-ended
}

func (p *program) left() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.cleanups) > 0
}

// takeCleanup makes the last cleanup. It may add others.
func (p *program) takeCleanup() {
	p.mu.Lock()
	last := len(p.cleanups) - 1
	f := p.cleanups[last]
	p.cleanups = p.cleanups[:last]
	p.mu.Unlock()
	f()
}

func (p *program) Helper() {}

func (p *program) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

func (p *program) Logf(format string, args ...any) { fmt.Fprintf(p.out, format+"\n", args...) }

func (p *program) Errorf(format string, args ...any) {
	p.mu.Lock()
	p.failed = true
	p.mu.Unlock()
	p.Logf("not as it should be: "+format, args...)
}

func (p *program) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	runtime.Goexit()
}

func (p *program) Failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}
