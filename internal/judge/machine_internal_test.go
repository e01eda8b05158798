package judge

import (
	"os"
	"runtime"
	"testing"
)

func TestSlowness(t *testing.T) {
	t.Parallel()
	s := slowness{}
	first := s.measure([]int{os.Getpid()})
	if first != 1 {
		t.Errorf("without a second look it is %v, want 1", first)
	}
	s.last[os.Getpid()] = share{} // long ago
	now := s.measure([]int{os.Getpid()})
	if now < 1 || runtime.GOOS == "linux" && shareOf(os.Getpid()).ran == 0 {
		t.Errorf("slowness is %v, the share %+v", now, shareOf(os.Getpid()))
	}
	s = slowness{window: []share{{ran: 1, waited: 1}, {ran: 1, waited: 5}}}
	if got := s.measure(nil); got != 4 {
		t.Errorf("slowness is %v, want 4", got)
	}
	for range slowWindow {
		s.measure(nil)
	}
	if got := s.measure(nil); got != 1 {
		t.Errorf("slowness of a while ago is %v, want 1", got)
	}
}
