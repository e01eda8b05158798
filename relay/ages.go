package relay

import (
	"slices"
	"time"
)

// ages knows how old the oldest one of some messages is, to the second. A count
// for each second is enough, and costs next to nothing. The zero ages is empty. It
// belongs to the router and needs no lock.
type ages struct{ seconds []second }

// second counts the messages that came in one second.
type second struct {
	unix int64
	n    int
}

// add takes in a message that came at this time; times only go forward.
func (a *ages) add(at time.Time) {
	unix := at.Unix()
	if last := len(a.seconds) - 1; last >= 0 && a.seconds[last].unix >= unix {
		a.seconds[last].n++
		return
	}
	a.seconds = append(a.seconds, second{unix, 1})
}

// remove takes out a message that came at this time. When the clock was set back
// it went to a later second.
func (a *ages) remove(at time.Time) {
	i, found := slices.BinarySearchFunc(a.seconds, at.Unix(), func(s second, unix int64) int { return int(s.unix - unix) })
	if !found {
		i = min(i, len(a.seconds)-1)
	}
	if i < 0 {
		return
	}
	if a.seconds[i].n--; a.seconds[i].n == 0 {
		a.seconds = slices.Delete(a.seconds, i, i+1)
	}
}

// count is how many there are.
func (a *ages) count() (n int) {
	for _, s := range a.seconds {
		n += s.n
	}
	return n
}

// oldest is when the oldest one came; zero without any.
func (a *ages) oldest() time.Time {
	if len(a.seconds) == 0 {
		return time.Time{}
	}
	return time.Unix(a.seconds[0].unix, 0)
}
