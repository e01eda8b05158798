package emulator_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

func TestDeliveries_HistoryAndSingle(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	first := emulator.Delivery{ID: "dlv_1", Webhook: "wh_1", Event: "message.dead", Time: at, Status: "failed", DestinationStatus: 503, Attempts: 3, Payload: json.RawMessage(`{"a":1}`)}
	if id, err := s.AddDelivery(first); err != nil || id != "dlv_1" {
		t.Fatalf("added %q, %v", id, err)
	}
	before := s.Clock().Now()
	second, err := s.AddDelivery(emulator.Delivery{Webhook: "wh_1", Event: "message.sent"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddDelivery(emulator.Delivery{Webhook: "wh_2"}); err != nil {
		t.Fatal(err)
	}

	var history struct{ Items []emulator.Delivery }
	dataOf(t, s.get("/v1/account/webhooks/deliveries/wh_1"), &history)
	if len(history.Items) != 2 || history.Items[0].ID != second || history.Items[0].Status != "delivered" || history.Items[0].Attempts != 1 ||
		history.Items[0].Time.Before(before.Truncate(0).Add(-time.Second)) {
		t.Errorf("history %+v", history.Items)
	}
	if diff := cmp.Diff(first, history.Items[len(history.Items)-1]); diff != "" {
		t.Errorf("the oldest (-want +got):\n%s", diff)
	}
	var one emulator.Delivery
	dataOf(t, s.get("/v1/account/webhooks/deliveries/dlv_1"), &one)
	if diff := cmp.Diff(first, one); diff != "" {
		t.Errorf("one (-want +got):\n%s", diff)
	}
	for _, id := range []string{"wh_3", "dlv_1x"} {
		s.get("/v1/account/webhooks/deliveries/"+id).want(t, http.StatusNotFound, "WEBHOOK_NOT_FOUND")
	}
}

func TestDeliveries_AreGivenOverHTTP(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	give := func(body string) (int, string) {
		got := s.post("/_emulator/deliveries", body)
		return got.Status, string(got.Raw)
	}
	for _, body := range []string{`{"webhook":"wh_1"}`, `[{"webhook":"wh_1","id":"d_1"},{"webhook":"wh_1","status":"pending"}]`} {
		if status, raw := give(body); status != http.StatusOK {
			t.Errorf("%s: %d %s", body, status, raw)
		}
	}
	for body, want := range map[string]string{
		`{}`:                                    "webhook is",
		`{"webhook":"a/b"}`:                     "webhook is",
		`{"webhook":"w","status":"lost"}`:       "want one of delivered, failed, pending",
		`{"webhook":"w","id":"w"}`:              "names either",
		`{"webhook":"w","id":"a/b"}`:            "id is",
		`{"webhook":"w","destination":"x"}`:     "unknown field",
		`[{"webhook":"w"},{"status":"failed"}]`: "webhook is",
		`nothing`:                               "invalid character",
	} {
		if status, raw := give(body); status != http.StatusBadRequest || !strings.Contains(raw, want) {
			t.Errorf("%s: %d %s, want %q", body, status, raw, want)
		}
	}
	var history struct{ Items []emulator.Delivery }
	dataOf(t, s.get("/v1/account/webhooks/deliveries/wh_1"), &history)
	if len(history.Items) != 3 {
		t.Errorf("%d deliveries, want the valid ones", len(history.Items))
	}
}

// A call needs a key and the right method, and the list is bounded.
func TestDeliveries_Bounds(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	const path = "/v1/account/webhooks/deliveries/"
	for i := range 10_001 {
		if _, err := s.AddDelivery(emulator.Delivery{ID: fmt.Sprintf("d_%d", i), Webhook: "wh"}); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]int{"d_0": http.StatusNotFound, "d_1": http.StatusOK, "": http.StatusNotFound, "a/b": http.StatusNotFound} {
		if got := s.get(path + id); got.Status != want {
			t.Errorf("%q: status %d, want %d", id, got.Status, want)
		}
	}
	if got := s.post(path+"wh", "{}"); got.Status != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d", got.Status)
	}
	for _, e := range s.Journal().Entries(0, 0) {
		if e.Queue != "" {
			t.Errorf("the journal has the id as queue %q", e.Queue)
		}
	}
}

// dataOf opens the data of a success.
func dataOf(t *testing.T, got reply, v any) {
	t.Helper()
	got.want(t, http.StatusOK, "")
	if err := json.Unmarshal(got.Data, v); err != nil {
		t.Fatalf("data %s: %v", got.Data, err)
	}
}
