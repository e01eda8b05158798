package judge

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// A seed decides what writers write and what goes wrong, whatever happened
// before.
func TestPlan_DependsOnTheSeedAlone(t *testing.T) {
	t.Parallel()
	plans := func(seed uint64) (all []plan) {
		for number := range 50 {
			all = append(all, newPlan(seed, 3, number, []int32{3, 33, 63}, newMood(seed)))
		}
		return all
	}
	unexported := cmp.AllowUnexported(plan{}, plannedRow{})
	if diff := cmp.Diff(plans(7), plans(7), unexported); diff != "" {
		t.Errorf("one seed, two stories:\n%s", diff)
	}
	if cmp.Equal(plans(7), plans(8), unexported) {
		t.Error("two seeds, one story")
	}
	var rows, options, later, withdrawn int
	for number := range 3000 {
		p := newPlan(1, 0, number, []int32{0}, newMood(1))
		rows += len(p.rows)
		for _, r := range p.rows {
			if r.delay >= 0 || r.priority >= 0 {
				options++
			}
			if r.later > 0 {
				later++
			}
		}
		if p.withdraw >= 0 {
			withdrawn++
		}
	}
	if options == 0 || later == 0 || withdrawn == 0 {
		t.Errorf("of %d rows %d have options, %d are scheduled, %d withdrawn", rows, options, later, withdrawn)
	}
}

// While the script changes, no request gets through that it forbids.
func TestScript_LeavesNoGap(t *testing.T) {
	t.Parallel()
	queue := emulator.New(emulator.Config{Queues: queues})
	defer queue.Close()
	s := &script{queue: queue, report: newReport(1, 1, func(string) {}), mood: newMood(1)}
	s.soften(true)
	s.infect(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 300 {
			s.begin(emulator.Fault{Status: 503})()
		}
	}()
	for number := 0; ; number++ {
		select {
		case <-done:
			if number == 0 {
				t.Error("nothing was sent")
			}
			return
		default:
		}
		body := strings.NewReader(`{"idempotency_key":"` + key(0, number, 1) + `","payload":{},"queue":"orders"}`)
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/queue/publish", body)
		request.Header.Set("Authorization", "Bearer key")
		answer := httptest.NewRecorder()
		queue.ServeHTTP(answer, request)
		if answer.Code != 422 && answer.Code != 503 {
			t.Fatalf("request %d: status %d, want a refusal", number, answer.Code)
		}
	}
}

// A queue that is dead keeps no sick message from being refused, and one that
// takes messages does not take sick ones.
func TestScript_Order(t *testing.T) {
	t.Parallel()
	queue := emulator.New(emulator.Config{Queues: queues})
	defer queue.Close()
	s := &script{queue: queue, report: newReport(1, 1, func(string) {}), mood: newMood(1)}
	s.infect(1)
	s.infect(2)
	s.begin(emulator.Fault{Store: true, Hang: true})
	end := s.begin(emulator.Fault{Status: 503})
	first := func() (status []int) {
		for _, f := range queue.Faults()[:4] {
			status = append(status, f.Status)
		}
		return status
	}
	if diff := cmp.Diff([]int{503, 422, 500, 0}, first()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	end()
	s.heal(1)
	if got := queue.Faults()[0]; got.Status != 500 || got.KeyPrefix != sickPrefix(2) {
		t.Errorf("the first is %+v, want the second sickness", got)
	}
}
