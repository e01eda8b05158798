package relay

import "time"

// speedometer tells how many rows of a scope go each second. Rows go in batches,
// so it counts for a while before it says anything. The zero speedometer has seen
// nothing. It belongs to the router and needs no lock.
type speedometer struct {
	since time.Time // when the count began
	gone  int       // rows that went since then
	last  float64   // by the count before
}

// A count ends after wholeCount, or as soon as so many rows went.
const (
	wholeCount  = time.Second
	countedRows = 500
)

func (s *speedometer) count() { s.gone++ }

// perSecond is the speed by the last count that ended. Only this call ends one.
func (s *speedometer) perSecond(now time.Time) float64 {
	passed := now.Sub(s.since)
	if s.since.IsZero() {
		s.since, s.gone = now, 0
	} else if passed >= wholeCount || s.gone >= countedRows {
		s.last = float64(s.gone) / max(passed, time.Millisecond).Seconds()
		s.since, s.gone = now, 0
	}
	return s.last
}
