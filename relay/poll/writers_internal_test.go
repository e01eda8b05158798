package poll

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// server plays what Postgres does with numbers and locks.
type server struct {
	last         int64
	transactions int
	open         []*transaction
	visible      map[int64]bool
}

type transaction struct {
	name    string
	pid     int
	numbers []int64
}

// step does something at random.
func (s *server) step(t *rapid.T) {
	if len(s.open) == 0 || rapid.IntRange(0, 3).Draw(t, "begin") == 0 {
		s.transactions++
		s.open = append(s.open, &transaction{name: fmt.Sprintf("%d/%d", s.transactions%4, s.transactions), pid: s.transactions})
		return
	}
	i := rapid.IntRange(0, len(s.open)-1).Draw(t, "which")
	switch x := s.open[i]; rapid.IntRange(0, 4).Draw(t, "act") {
	case 0, 1:
		if x.pid != 0 {
			s.last++
			x.numbers = append(x.numbers, s.last)
		}
	case 2: // commit
		for _, n := range x.numbers {
			s.visible[n] = true
		}
		s.open = append(s.open[:i], s.open[i+1:]...)
	case 3: // roll back
		s.open = append(s.open[:i], s.open[i+1:]...)
	case 4: // prepare
		if x.pid != 0 {
			x.name, x.pid = "-1/"+x.name, 0
		}
	}
}

// steps does some things.
func (s *server) steps(t *rapid.T) {
	for range rapid.IntRange(0, 6).Draw(t, "steps") {
		s.step(t)
	}
}

func (s *server) holders() []writer {
	var holders []writer
	for _, x := range s.open {
		holders = append(holders, writer{transaction: x.name, pid: x.pid})
	}
	return holders
}

// Whatever transactions do, and whenever the server is asked: no number that was
// called settled appears later.
func TestWriters_SettledNumbersNeverAppearLater(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &server{visible: map[int64]bool{}}
		var w writers
		now := time.Unix(0, 0)
		for range rapid.IntRange(1, 30).Draw(t, "looks") {
			s.steps(t)
			last := s.last
			s.steps(t)
			w.observe(now, last, s.holders())
			if settled := w.settled(); settled > last {
				t.Fatalf("%d is settled, and only %d were given out", settled, last)
			}
			for _, x := range s.open {
				for _, n := range x.numbers {
					if n <= w.settled() {
						t.Fatalf("%d is called settled up to %d, and %s has not ended", n, w.settled(), x.name)
					}
				}
			}
			now = now.Add(time.Second)
		}
		// Nobody is held back for ever by what has ended.
		for _, x := range s.open {
			x.numbers = nil
		}
		s.open = nil
		w.observe(now, s.last, s.holders())
		if w.settled() != s.last {
			t.Fatalf("%d is settled, want %d: nobody is at work", w.settled(), s.last)
		}
	})
}

// Whoever is waited for or not: a look that comes back to where those who ended
// since the one before may have written finds all that can be seen.
func TestWriters_NothingStaysBehind(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &server{visible: map[int64]bool{}}
		var w writers
		now, patience := time.Unix(0, 0), time.Duration(rapid.IntRange(0, 4).Draw(t, "patience"))*time.Second
		frontier, found := int64(0), map[int64]bool{}
		for range rapid.IntRange(1, 30).Draw(t, "looks") {
			s.steps(t)
			last := s.last
			s.steps(t)
			visible := maps.Clone(s.visible)
			w.observe(now, last, s.holders())
			frontier = min(frontier, w.ended)
			s.steps(t)
			for n := frontier + 1; n <= last; n++ {
				found[n] = found[n] || s.visible[n]
			}
			for n := range visible {
				if n <= last && !found[n] {
					t.Fatalf("%d could be seen, and a look from %d to %d did not find it", n, frontier, last)
				}
			}
			frontier = max(frontier, w.settledWithout(now.Add(-patience)))
			now = now.Add(time.Second)
		}
	})
}

// A stream of short transactions, of which one is always open, holds back little.
func TestWriters_FollowAStreamOfTransactions(t *testing.T) {
	t.Parallel()
	var w writers
	w.observe(time.Unix(0, 0), 0, nil)
	for i := range int64(100) {
		w.observe(time.Unix(i, 0), 10*i, []writer{{transaction: fmt.Sprint(i), pid: 1}, {transaction: fmt.Sprint(i + 1), pid: 2}})
		if behind := 10*i - w.settled(); behind > 20 {
			t.Fatalf("after %d looks the settled numbers are %d behind", i, behind)
		}
	}
}

// A transaction that is open for long is named, and stops holding back what
// needs no order.
func TestWriters_LongTransaction(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	long := writer{transaction: "3/7", pid: 42}
	var w writers
	w.observe(begin, 5, nil)
	for i := range int64(20) {
		now := begin.Add(time.Duration(i) * time.Second)
		w.observe(now, 10*i+5, []writer{long, {transaction: fmt.Sprint(i), pid: 1}})
		if w.settled() != 5 {
			t.Fatalf("%d is settled, want 5", w.settled())
		}
		if got, found := w.obstacle(); i > 0 && (!found || got.pid != 42 || !got.since.Equal(begin)) {
			t.Fatalf("the obstacle is %+v", got)
		}
		want := int64(5)
		if i >= 10 {
			want = 10*i - 5 // the short one is above the last number of the look before
		}
		if got := w.settledWithout(now.Add(-10 * time.Second)); got != want {
			t.Fatalf("after %d s, %d is settled without the long one, want %d", i, got, want)
		}
	}
	w.observe(begin.Add(time.Minute), 300, nil)
	if _, found := w.obstacle(); found || w.settled() != 300 {
		t.Errorf("%d is settled, want 300", w.settled())
	}
}
