package admin

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/internal/tally"
	"github.com/outbox-relay/outbox-relay/relay"
)

// counted is what a relay has counted of a queue whose requests took half a second
// each but for some slow ones.
func counted(name string, accepted, transient, slow uint64) relay.QueueCounts {
	n := accepted + transient
	return relay.QueueCounts{
		Name: name, Requests: map[string]uint64{relay.Accepted: accepted, "transient": transient, "conflict": 0},
		Duration: tally.Distribution{
			Count: n, Sum: float64(n-slow)/2 + 8*float64(slow), Bounds: []float64{1, 5, 10}, Buckets: []uint64{n - slow, n - slow, n},
		},
	}
}

func TestRequests_OfTheLastMinute(t *testing.T) {
	t.Parallel()
	var r requests
	if got := r.lately(); len(got) != 0 {
		t.Errorf("before anything was read it is %+v", got)
	}
	began := time.Unix(1_000_000, 0)
	for i := range uint64(30) { // each 5 s ten more, and from 100 s on two in ten fail
		failed := 2*max(i, 20) - 40
		now := began.Add(time.Duration(i) * sampleEvery)
		r.add(now, []relay.QueueCounts{counted("orders", 10*i-failed, failed, 0), counted("quiet", 7, 3, 0)})
	}
	want := []Requests{{Queue: "orders", Count: 120, Failed: 18, Class: "transient", MeanSeconds: 0.5, SlowSeconds: 0.99}}
	if diff := cmp.Diff(want, r.lately()); diff != "" {
		t.Error(diff)
	}
	if n := len(r.readings); n != int(requestSpan/sampleEvery)+1 {
		t.Errorf("%d readings are kept", n)
	}
}

// A queue that comes later has no count to compare with: all of its requests are new.
func TestRequests_OfANewQueue(t *testing.T) {
	t.Parallel()
	var r requests
	now := time.Unix(1_000_000, 0)
	r.add(now, nil)
	r.add(now.Add(sampleEvery), []relay.QueueCounts{counted("late", 3, 1, 0)})
	if got := r.lately(); len(got) != 1 || got[0].Count != 4 || got[0].Failed != 1 {
		t.Errorf("it is %+v", got)
	}
}

func TestRequests_Warnings(t *testing.T) {
	t.Parallel()
	closed := relay.GateState{Closed: true, Class: "transient"}
	tests := map[string]struct {
		endpoint, queue relay.GateState
		last            relay.QueueCounts
		want            string
	}{
		"all is well":         {last: counted("orders", 1000, 0, 0)},
		"a few fail":          {last: counted("orders", 1000, 50, 0)},
		"few requests":        {last: counted("orders", 2, 4, 0)},
		"a tenth and more":    {last: counted("orders", 80, 20, 0), want: "failing: queue orders: 20 of 100 requests failed in the last minute, most of them with transient"},
		"the queue is closed": {last: counted("orders", 80, 20, 0), queue: closed},
		"all are closed":      {last: counted("orders", 80, 20, 0), endpoint: closed},
		"slow":                {last: counted("orders", 80, 0, 4), want: "slow: queue orders: requests take 875 ms, one of a hundred more than 9 s, in the last minute"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := new(Server)
			s.requests.add(time.Unix(1_000_000, 0), nil)
			s.requests.add(time.Unix(1_000_005, 0), []relay.QueueCounts{test.last})
			state := relay.State{Phase: relay.Active, Router: relay.RouterState{
				Endpoint: test.endpoint, Queues: []relay.QueueState{{Name: "orders", Gate: test.queue}},
			}}
			var got []string
			for _, w := range s.ready(&state).Warnings {
				if w.Code == "failing" || w.Code == "slow" {
					got = append(got, w.Code+": "+w.Text)
				}
			}
			if diff := cmp.Diff(test.want, strings.Join(got, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What a person does depends on what fails.
func TestRequests_Hints(t *testing.T) {
	t.Parallel()
	for class, want := range map[string]string{
		"refused": "dead-letters list --queue orders", "conflict": "dead-letters list --queue orders",
		"rate_limited": "queues set orders rate_per_second", "transient": "sent again", "unknown_outcome": "sent again",
	} {
		if got := (&Requests{Queue: "orders", Class: class}).hint(); !strings.Contains(got, want) {
			t.Errorf("%s: %q does not say %q", class, got, want)
		}
	}
}

func TestRequests_ForPeople(t *testing.T) {
	t.Parallel()
	for failed, want := range map[uint64]string{0: "0 %", 1: "below 1 %", 20: "2 %", 1000: "100 %"} {
		if got := (&Requests{Count: 1000, Failed: failed}).FailedPercent(); got != want {
			t.Errorf("%d of 1000 is %q, want %q", failed, got, want)
		}
	}
	if share := new(Requests).share(); math.Abs(share) > 0 {
		t.Errorf("of nothing %v failed", share)
	}
}
