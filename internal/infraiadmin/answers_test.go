package infraiadmin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/internal/infraiadmin"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

func TestStats(t *testing.T) {
	t.Parallel()
	c, _ := newQueue(t, emulator.Config{Queues: []string{"orders"}})
	got, err := c.Stats(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	none, nothing := new(int64(0)), new(0.0)
	want := &infraiadmin.Stats{
		Queue: "orders", Ready: none, Delayed: none, InFlight: none, DeadLetter: none, OldestReadyAge: nothing, Others: map[string]any{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	if failure := asked(t, serve(t, http.NotFoundHandler())); failure.Problem != infraiadmin.NotFound {
		t.Errorf("%v", failure)
	}
}

// Whatever the queue tells is shown; what it does not tell is unknown, not 0.
func TestStats_OfAnotherShape(t *testing.T) {
	t.Parallel()
	c := serve(t, answering(http.StatusOK,
		`{"ok":true,"data":{"queue":"other","ready":"many","delayed":1.5,"in_flight":3,"depth":9,"paused":false,"oldest":null,"by_group":{"a":1},"note":"`+
			strings.Repeat("x", 300)+`"}}`))
	got, err := c.Stats(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	want := &infraiadmin.Stats{
		Queue: "orders", InFlight: new(int64(3)),
		Others: map[string]any{"ready": "many", "delayed": 1.5, "depth": 9.0, "paused": false, "oldest": nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	for _, body := range []string{`{"ok":true}`, `{"ok":true,"data":null}`, `{"ok":true,"data":[1]}`} {
		if failure := asked(t, serve(t, answering(http.StatusOK, body))); failure.Problem != infraiadmin.Unreadable {
			t.Errorf("%s: %v", body, failure)
		}
	}
}

func TestDeliveries_EveryKnownShape(t *testing.T) {
	t.Parallel()
	const record = `{"id":"d_1","event":"message.dead","status":"failed","destination_status":503,"timestamp":"2026-01-02T03:04:05Z",` +
		`"attempts":3,"payload":{"card":"private"},"next":null}`
	delivery := infraiadmin.Delivery{
		ID: "d_1", Event: "message.dead", Status: "failed", DestinationStatus: "503", At: "2026-01-02T03:04:05Z", Attempts: "3",
		Others: []string{"next", "payload"},
	}
	one, none := []infraiadmin.Delivery{delivery}, []infraiadmin.Delivery{}
	for data, want := range map[string][]infraiadmin.Delivery{
		`{"items":[` + record + `]}`:                one,
		`{"deliveries":[` + record + `],"total":1}`: one,
		`[` + record + `]`:                          one,
		record:                                      one, // the id is that of a delivery
		`{"items":[]}`:                              none,
		`{"items":null}`:                            none,
		`null`:                                      none,
		`[{"delivery_id":"d","type":"t","attempts":[1,2]}]`: {{ID: "d", Event: "t", Attempts: "2", Others: []string{}}},
		`[{"status":{"a":1},"event":true}]`:                 {{Others: []string{"event", "status"}}},
	} {
		got, err := serve(t, answering(http.StatusOK, `{"ok":true,"data":`+data+`}`)).Deliveries(t.Context(), "wh_1")
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: deliveries (-want +got):\n%s", data, diff)
		}
	}
	for _, data := range []string{`7`, `"text"`, `{}`, `[1]`, `{"items":{"a":1}}`, `{"items":"none"}`} {
		got, err := serve(t, answering(http.StatusOK, `{"ok":true,"data":`+data+`}`)).Deliveries(t.Context(), "wh_1")
		if err == nil || !strings.Contains(err.Error(), "known shape") {
			t.Errorf("%s: %v, %v", data, got, err)
		}
	}
}

// An id cannot lead to another call.
func TestClient_NamesAreChecked(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) }))
	t.Cleanup(web.Close)
	c := newClient(t, configFor(web.URL))
	for _, name := range []string{"", "..", "a/b", "../../queue/list", "a?b", "a b", "a%2f", "\x1b", strings.Repeat("a", 300)} {
		_, deliveries := c.Deliveries(t.Context(), name)
		_, stats := c.Stats(t.Context(), name)
		_, described := c.Capability(t.Context(), name)
		_, planned := c.Plan(t.Context(), name, infraiadmin.Settings{Type: "standard"})
		for _, err := range []error{deliveries, stats, described, planned} {
			if err == nil || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}
