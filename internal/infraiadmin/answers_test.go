package infraiadmin_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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

// The emulator tells what it was given, for the id of the webhook and for that of
// the delivery.
func TestDeliveries_OfTheEmulator(t *testing.T) {
	t.Parallel()
	c, server := newQueue(t, emulator.Config{})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if _, err := server.AddDelivery(emulator.Delivery{
		ID: "dlv_1", Webhook: "wh_1", Event: "message.dead", Time: at, Status: "failed", DestinationStatus: 503, Attempts: 3,
		Payload: json.RawMessage(`{"card":"private"}`),
	}); err != nil {
		t.Fatal(err)
	}
	want := []infraiadmin.Delivery{{
		ID: "dlv_1", Event: "message.dead", Status: "failed", DestinationStatus: "503", At: "2026-01-02T03:04:05Z", Attempts: "3",
		Others: []string{"payload", "webhook"},
	}}
	for _, id := range []string{"wh_1", "dlv_1"} {
		got, err := c.Deliveries(t.Context(), id)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", id, err, diff)
		}
	}
	_, err := c.Deliveries(t.Context(), "wh_2")
	if failure, _ := errors.AsType[*infraiadmin.Error](err); failure == nil || failure.Problem != infraiadmin.NotFound || failure.Code != "WEBHOOK_NOT_FOUND" {
		t.Errorf("an unknown id: %v", err)
	}
}

// A queue that is missing is not an error; a server that is none is one.
func TestExists(t *testing.T) {
	t.Parallel()
	c, _ := newQueue(t, emulator.Config{Queues: []string{"orders"}})
	for name, want := range map[string]bool{"orders": true, "mails": false} {
		if got, err := c.Exists(t.Context(), name); got != want || err != nil {
			t.Errorf("%s exists: %t, %v", name, got, err)
		}
	}
	if err := c.CheckKey(t.Context()); err != nil {
		t.Errorf("a key that is taken: %v", err)
	}
	_, err := serve(t, http.NotFoundHandler()).Exists(t.Context(), "orders")
	if failure, _ := errors.AsType[*infraiadmin.Error](err); failure == nil || failure.Problem != infraiadmin.NotFound {
		t.Errorf("a server that is no queue: %v", err)
	}
	if _, err := c.Exists(t.Context(), "../orders"); err == nil {
		t.Error("a name that leads elsewhere was asked for")
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
