package drill

import (
	"context"
	"fmt"
	"sync"

	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

// Reports counts what became of deliveries: its method Report is for the
// configuration of a receiver or a loop. The zero value has none. It is safe for
// concurrent use.
type Reports struct {
	mu    sync.Mutex
	count map[consumer.Outcome]int
}

// Report counts one delivery.
func (r *Reports) Report(report consumer.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == nil {
		r.count = make(map[consumer.Outcome]int)
	}
	r.count[report.Outcome]++
}

// Count is how many deliveries had this outcome.
func (r *Reports) Count(outcome consumer.Outcome) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[outcome]
}

// AwaitReports waits until so many deliveries had this outcome.
func (s *Stage) AwaitReports(r *Reports, outcome consumer.Outcome, want int) {
	s.Helper()
	s.Await(func(context.Context) error {
		if n := r.Count(outcome); n != want {
			return fmt.Errorf("%d deliveries are %s, want %d", n, outcome, want)
		}
		return nil
	})
}
