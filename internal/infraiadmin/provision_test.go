package infraiadmin_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/internal/infraiadmin"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// wanted is a queue with every setting.
var wanted = infraiadmin.Settings{
	Type: "fifo", DeadLetterQueue: "orders-dlq", MaxRetries: new(4), RetentionDays: new(7), VisibilityTimeout: new(60), EnablePriority: true,
}

// plan makes a plan and returns what it does about each queue.
func plan(t *testing.T, c *infraiadmin.Client, queue string, s infraiadmin.Settings) (steps []infraiadmin.Step, actions string) {
	t.Helper()
	steps, err := c.Plan(t.Context(), queue, s)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, s := range steps {
		texts = append(texts, string(s.Action)+" "+s.Queue)
	}
	return steps, strings.Join(texts, ", ")
}

// created lists the requests that created a queue, in order.
func created(server *emulator.Server) (names, bodies, keys []string) {
	for _, e := range server.Journal().Entries(0, 0) {
		if e.Route == "queue.create" {
			names, bodies, keys = append(names, e.Queue), append(bodies, string(e.Body)), append(keys, e.Key)
		}
	}
	return names, bodies, keys
}

func TestProvision_DeadLettersFirstAndOnce(t *testing.T) {
	t.Parallel()
	c, server := newQueue(t, emulator.Config{})
	steps, actions := plan(t, c, "orders", wanted)
	if want := "create orders-dlq, create orders"; actions != want {
		t.Fatalf("plan is %q, want %q", actions, want)
	}
	if names, _, _ := created(server); len(names) != 0 {
		t.Fatalf("a plan creates %v", names)
	}
	if err := c.Provision(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	if !steps[0].Created || !steps[1].Created {
		t.Errorf("steps are %+v", steps)
	}
	names, bodies, keys := created(server)
	if diff := cmp.Diff([]string{"orders-dlq", "orders"}, names); diff != "" {
		t.Fatalf("created (-want +got):\n%s", diff)
	}
	// Names are sorted, without spaces, with one newline: equal bytes for equal requests.
	want := `{"dead_letter_queue":"orders-dlq","enable_priority":true,"idempotency_key":"` + keys[1] + `","max_retries":4,` +
		`"message_retention_days":7,"name":"orders","type":"fifo","visibility_timeout_default":60}` + "\n"
	if diff := cmp.Diff(want, bodies[1]); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}

	steps, actions = plan(t, c, "orders", wanted)
	if want := "keep orders-dlq, keep orders"; actions != want {
		t.Errorf("the second plan is %q, want %q", actions, want)
	}
	if err := c.Provision(t.Context(), steps); err != nil {
		t.Error(err)
	}
	if names, _, _ := created(server); len(names) != 2 {
		t.Errorf("created %v", names)
	}
}

// A queue that was deleted is created again, also within the time for which the
// queue remembers keys.
func TestProvision_AgainAfterDeletion(t *testing.T) {
	t.Parallel()
	c, server := newQueue(t, emulator.Config{})
	for range 2 {
		steps, actions := plan(t, c, "orders", infraiadmin.Settings{Type: "standard"})
		if actions != "create orders" {
			t.Fatalf("plan is %q", actions)
		}
		if err := c.Provision(t.Context(), steps); err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://queue.test/v1/queue/delete/orders", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+apiKey)
		server.ServeHTTP(httptest.NewRecorder(), request)
	}
}

func TestProvision_OtherSettingsChangeNothing(t *testing.T) {
	t.Parallel()
	c, server := newQueue(t, emulator.Config{Queues: []string{"orders"}})
	steps, actions := plan(t, c, "orders", wanted)
	if want := "create orders-dlq, differ orders"; actions != want {
		t.Fatalf("plan is %q, want %q", actions, want)
	}
	var texts []string
	for _, d := range steps[1].Differences {
		texts = append(texts, d.String())
	}
	want := []string{
		`dead_letter_queue is null, wanted "orders-dlq"`, "enable_priority is false, wanted true", "max_retries is 5, wanted 4",
		"message_retention_days is 14, wanted 7", `type is "standard", wanted "fifo"`, "visibility_timeout_default is 30, wanted 60",
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	err := c.Provision(t.Context(), steps)
	if different, ok := errors.AsType[*infraiadmin.Different](err); !ok || different.Hint() == "" {
		t.Errorf("error is %v", err)
	}
	if names, _, _ := created(server); len(names) != 0 {
		t.Errorf("created %v", names)
	}
}

// A dead letter queue that is there may be that of others too.
func TestProvision_SharedDeadLetters(t *testing.T) {
	t.Parallel()
	c, _ := newQueue(t, emulator.Config{Queues: []string{"orders-dlq"}})
	steps, actions := plan(t, c, "orders", wanted)
	if want := "keep orders-dlq, create orders"; actions != want {
		t.Fatalf("plan is %q, want %q", actions, want)
	}
	if err := c.Provision(t.Context(), steps); err != nil {
		t.Error(err)
	}
}

// Somebody else is faster: between plan and act the queue appears.
func TestProvision_SomebodyElseIsFaster(t *testing.T) {
	t.Parallel()
	for _, recreate := range []string{"ok", "409"} {
		c, _ := newQueue(t, emulator.Config{Settings: emulator.Settings{Recreate: recreate}})
		mine, _ := plan(t, c, "orders", wanted)
		theirs, _ := plan(t, c, "orders", wanted)
		if err := c.Provision(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
		if err := c.Provision(t.Context(), mine); err != nil {
			t.Errorf("recreate=%s: %v", recreate, err)
		}
		if mine[1].Action != infraiadmin.Keep {
			t.Errorf("recreate=%s: step is %+v", recreate, mine[1])
		}
	}
	c, _ := newQueue(t, emulator.Config{})
	mine, _ := plan(t, c, "orders", wanted)
	theirs, _ := plan(t, c, "orders", infraiadmin.Settings{Type: "standard"})
	if err := c.Provision(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	if err := c.Provision(t.Context(), mine); !isDifferent(err) {
		t.Errorf("of other settings: %v", err)
	}
}

func isDifferent(err error) bool {
	_, ok := errors.AsType[*infraiadmin.Different](err)
	return ok
}

// The answer to a creation is lost: the next run finds what was done.
func TestProvision_LostAnswer(t *testing.T) {
	t.Parallel()
	c, server := newQueue(t, emulator.Config{})
	addFault(t, server, emulator.Fault{Route: "queue.create", Queue: "orders", Store: true, Cut: emulator.CutHalf, Count: 1})
	steps, _ := plan(t, c, "orders", wanted)
	err := c.Provision(t.Context(), steps)
	if failure, ok := errors.AsType[*infraiadmin.Error](err); !ok || failure.Problem != infraiadmin.Unreachable {
		t.Fatalf("error is %v", err)
	}
	if !steps[0].Created || steps[1].Created {
		t.Errorf("steps are %+v", steps)
	}
	if _, actions := plan(t, c, "orders", wanted); actions != "keep orders-dlq, keep orders" {
		t.Errorf("the next plan is %q", actions)
	}
}

// The queue says yes and has created nothing, or says that the name is taken and
// does not have it.
func TestProvision_LooksWhatCameOfIt(t *testing.T) {
	t.Parallel()
	for answer, want := range map[int]string{http.StatusOK: "does not have it", http.StatusConflict: "create queue orders: something else holds"} {
		c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				answering(answer, `{"ok":true,"data":{"name":"orders"}}`)(w, r)
				return
			}
			answering(http.StatusNotFound, `{"ok":false,"error":{"code":"QUEUE_NOT_FOUND"}}`)(w, r)
		}))
		steps, _ := plan(t, c, "orders", infraiadmin.Settings{Type: "standard"})
		if err := c.Provision(t.Context(), steps); err == nil || !strings.Contains(err.Error(), want) || steps[0].Created {
			t.Errorf("%d: error is %v, step %+v", answer, err, steps[0])
		}
	}
}

// A queue that tells nothing about itself cannot be compared.
func TestPlan_QueueTellsNothing(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"ok":true,"data":{}}`, `{"ok":true,"data":null}`, `{"ok":true}`, `{"ok":true,"data":["orders"]}`} {
		steps, actions := plan(t, serve(t, answering(http.StatusOK, body)), "orders", infraiadmin.Settings{Type: "standard", MaxRetries: new(3)})
		if actions != "keep orders" {
			t.Errorf("%s: plan is %q", body, actions)
		}
		if diff := cmp.Diff([]string{"max_retries", "type"}, steps[0].Untold); diff != "" {
			t.Errorf("%s: untold (-want +got):\n%s", body, diff)
		}
	}
}

// A server that is no queue has not got any, and is not asked to create one.
func TestPlan_NotAQueue(t *testing.T) {
	t.Parallel()
	steps, err := serve(t, http.NotFoundHandler()).Plan(t.Context(), "orders", wanted)
	if failure, ok := errors.AsType[*infraiadmin.Error](err); !ok || failure.Problem != infraiadmin.NotFound || !strings.Contains(failure.Hint(), "INFRAI_BASE_URL") {
		t.Errorf("plan is %+v, error %v", steps, err)
	}
}

func TestSettings_Validate(t *testing.T) {
	t.Parallel()
	bad := infraiadmin.Settings{
		Type: "lifo", DeadLetterQueue: "Dead", MaxRetries: new(-1), RetentionDays: new(31), VisibilityTimeout: new(0),
	}
	err := bad.Validate("no queue")
	for _, text := range []string{`"no queue"`, `"lifo"`, `"Dead"`, "retries", "30 days", "visibility"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error lacks %q: %v", text, err)
		}
	}
	if err := (infraiadmin.Settings{Type: "fifo", DeadLetterQueue: "orders"}).Validate("orders"); err == nil {
		t.Error("a queue may be its own dead letter queue")
	}
	if err := wanted.Validate("orders"); err != nil {
		t.Error(err)
	}
}
