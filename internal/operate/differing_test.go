package operate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/internal/operate"
)

// What is listed is what `queues set` takes, and gives the same settings again.
func TestQueue_Differing(t *testing.T) {
	t.Parallel()
	for _, plain := range []operate.Queue{{}, {Paused: true, Ordering: "key", OnDeadLetter: "continue", Envelope: "none"}} {
		if got := plain.Differing(); got != nil {
			t.Errorf("without settings: %q", got)
		}
	}
	q := operate.Queue{
		Ordering: "queue", MaxInFlight: new(3), RatePerSecond: new(0.5), MaxAttempts: new(7), OnDeadLetter: "hold", Envelope: "cloudevents",
	}
	got := q.Differing()
	want := []string{"ordering=queue", "max_in_flight=3", "rate_per_second=0.5", "max_attempts=7", "on_dead_letter=hold", "envelope=cloudevents"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := operate.ParseSettings(got); err != nil {
		t.Errorf("queues set does not take them: %v", err)
	}
}
