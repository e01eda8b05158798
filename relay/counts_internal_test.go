package relay

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/outbox"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// counted is a relay that only counts.
func counted(queues int) *Relay { return &Relay{counts: newCounts(queues)} }

func (r *Relay) countRequest(queue string, err error) {
	r.counts.request(&message{row: &outbox.Row{Queue: queue}}, noon, noon.Add(20*time.Millisecond), err)
}

func TestCounts_RequestsByClass(t *testing.T) {
	t.Parallel()
	r := counted(1)
	r.countRequest("q", nil)
	r.countRequest("q", nil)
	r.countRequest("q", &PublishError{Class: RateLimited, Status: 429})
	r.countRequest("q", errors.New("breaks its contract"))
	r.countRequest("q", &PublishError{Class: Refused}) // was not sent
	r.countRequest("q", &PublishError{Class: 99, Status: 200})
	want := map[string]uint64{
		"accepted": 2, "rate_limited": 1, "unknown_outcome": 1, "transient": 1,
		"endpoint_closed": 0, "queue_closed": 0, "conflict": 0, "refused": 0,
	}
	q := r.Counts().Queues[1]
	if diff := cmp.Diff(want, q.Requests); diff != "" || q.Name != "q" {
		t.Errorf("queue %q:\n%s", q.Name, diff)
	}
	if q.Duration.Count != 5 || q.Duration.Buckets[1] != 0 || q.Duration.Buckets[2] != 5 {
		t.Errorf("of five requests of 20 ms: %+v", q.Duration)
	}
}

// Whatever names an application makes up, few are counted on their own.
func TestCounts_QueuesAreBounded(t *testing.T) {
	t.Parallel()
	r := counted(3)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for i := range 1000 {
				r.countRequest(fmt.Sprintf("q%d", i%100), nil)
			}
		})
	}
	workers.Wait()
	r.countRequest(OtherQueues, nil) // a queue that is called so
	queues := r.Counts().Queues
	if len(queues) != 4 || queues[0].Name != OtherQueues {
		t.Fatalf("got %d queues: %+v", len(queues), queues)
	}
	var sum uint64
	for _, q := range queues {
		sum += q.Requests[Accepted]
		if r.CountedAs(q.Name) != q.Name {
			t.Errorf("%s is counted as %s", q.Name, r.CountedAs(q.Name))
		}
	}
	if sum != 4001 || queues[0].Requests[Accepted] != 4001-3*40 {
		t.Errorf("%d requests in all, %d of the other queues", sum, queues[0].Requests[Accepted])
	}
	if got := r.CountedAs("q99999"); got != OtherQueues {
		t.Errorf("a queue that came later is counted as %s", got)
	}
}

func TestCounts_LatencyFromCommitToAcceptance(t *testing.T) {
	t.Parallel()
	c := newCounts(1)
	c.accepted(&message{row: &outbox.Row{CommittedAt: noon.Add(-2 * time.Second), CreatedAt: noon.Add(-time.Hour)}}, noon)
	c.accepted(&message{row: &outbox.Row{CreatedAt: noon.Add(-3 * time.Second)}}, noon) // polled
	c.accepted(&message{row: &outbox.Row{CreatedAt: noon.Add(-time.Hour)}, cached: true}, noon)
	c.accepted(&message{row: &outbox.Row{}}, noon) // nobody knows
	if d := c.live.Read(); d.Count != 2 || d.Sum != 5 {
		t.Errorf("live: %+v", d)
	}
	if d := c.fromTable.Read(); d.Count != 1 || d.Sum != 3600 {
		t.Errorf("deferred: %+v", d)
	}
}

func TestCounts_OutcomesByReason(t *testing.T) {
	t.Parallel()
	r := counted(9)
	row := func() *message { return &message{row: &outbox.Row{Queue: "q"}} }
	r.counts.outcomes([]*outcome{
		{message: row(), state: dispatched},
		{message: row(), state: dispatched, duplicate: true},
		{message: row(), state: deferred, reason: reasonHeld},
		{message: row(), state: deferred, reason: Transient.String()},
		{message: row(), state: postponed, reason: Transient.String()},
		{message: row(), state: dead, reason: reasonCrashed},
		{message: row(), state: dead, reason: "of a later version"},
		{message: row(), state: withdrawn},
	})
	got := r.Counts()
	if q := got.Queues[1]; q.Dispatched != 2 || got.PossibleDuplicates != 1 {
		t.Errorf("%d dispatched, %d possible duplicates", q.Dispatched, got.PossibleDuplicates)
	}
	if d := got.Deferrals; d["held"] != 1 || d["transient"] != 1 || d["scheduled"] != 0 {
		t.Errorf("deferred: %v", d)
	}
	if d := got.DeadLetters; d["crashed_relay"] != 1 || d[OtherReasons] != 1 || d["refused"] != 0 {
		t.Errorf("dead letters: %v", d)
	}
}

func TestCounts_WritesAndRetention(t *testing.T) {
	t.Parallel()
	r := counted(0)
	r.counts.write(100, 3*time.Millisecond, nil)
	r.counts.write(100, time.Second, errors.New("full disk"))
	r.counts.retained(noon, removed{messages: 1000, claims: 7}, nil)
	r.counts.retained(noon.Add(time.Minute), removed{messages: 1}, errors.New("no right"))
	got := r.Counts()
	if got.FailedWrites != 1 || got.Batches.Sum != 100 || got.Writes.Count != 1 {
		t.Errorf("writes: %+v %+v %d", got.Batches, got.Writes, got.FailedWrites)
	}
	if want := (Removed{Messages: 1001, Claims: 7}); got.Removed != want || !got.Retained.Equal(noon) {
		t.Errorf("removed %+v, last at %s", got.Removed, got.Retained)
	}
}

// What a message costs that is sent and marked: its request and its outcome.
func BenchmarkCounts(b *testing.B) {
	r := counted(50)
	m := &message{row: &outbox.Row{Queue: "orders", CommittedAt: noon}}
	batch := []*outcome{{message: m, state: dispatched}}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.counts.request(m, noon, noon.Add(7*time.Millisecond), nil)
			r.counts.outcomes(batch)
		}
	})
}

// A message on its way through the router, with a queue that takes no time and
// outcomes that are durable at once, without counting and with it.
func BenchmarkPublishPath(b *testing.B) {
	for name, count := range map[string]bool{"bare": false, "counted": true} {
		b.Run(name, func(b *testing.B) {
			counts := newCounts(50)
			r := newRig(Config{MaxInFlight: 8, MaxInFlightPerQueue: 8, WindowMessages: 100, WindowBytes: 1 << 20})
			w := &worker{wake: make(chan struct{}, 1)}
			b.ReportAllocs()
			for b.Loop() {
				m := r.put("orders", "")
				m.row.CommittedAt = r.now
				r.take(r.now, w)
				began := time.Now()
				ended := time.Now()
				if count {
					counts.request(m, began, ended, nil)
				}
				r.finish(ended, w, m, Receipt{}, nil)
				if count {
					counts.outcomes(r.emitted)
				}
				r.resolved(r.emitted)
				r.emitted, r.idle = r.emitted[:0], nil
			}
		})
	}
}
