package operate

import "time"

// Filter chooses messages. What is zero does not restrict; everything else must
// hold at once.
type Filter struct {
	IDs    []int64
	Key    string
	Queue  string
	Reason string
	// OlderThan and NewerThan compare with when a message died or was deferred.
	OlderThan, NewerThan time.Duration
	// Limit takes those with the lowest ids; 0 takes all.
	Limit int
	// Discarded takes in dead letters that were discarded. Naming the reason
	// does so too.
	Discarded bool
}

// Named reports whether single messages are asked for.
func (f Filter) Named() bool { return len(f.IDs) > 0 || f.Key != "" }

// args are the parameters of the conditions, $1 to $6.
func (f Filter) args() []any {
	return []any{f.IDs, f.Key, f.Queue, f.Reason, f.OlderThan.Seconds(), f.NewerThan.Seconds()}
}

// limit is a parameter for LIMIT, where null takes all.
func (f Filter) limit() *int {
	if f.Limit == 0 {
		return nil
	}
	return &f.Limit
}

// Count is a number of messages that was counted up to a bound.
type Count struct {
	Count   int64 `json:"count"`
	AtLeast bool  `json:"at_least"`
}

// Bound is where counts stop.
const Bound = 100_000

func newCount(n int64) Count { return Count{Count: min(n, Bound), AtLeast: n > Bound} }
