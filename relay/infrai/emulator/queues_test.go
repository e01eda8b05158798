package emulator_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// data decodes the data of an answer, without what differs at every run.
func (got reply) fields(t *testing.T) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(got.Data, &fields); err != nil {
		t.Fatalf("data %s: %v", got.Data, err)
	}
	delete(fields, "created_at")
	return fields
}

func TestCreate_DescribesTheQueue(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	s.create(`{"name":"letters"}`)
	got := s.post("/v1/queue/create", `{"name":"orders","type":"fifo","dead_letter_queue":"letters","max_retries":4,`+
		`"message_retention_days":2.5,"visibility_timeout_default":60,"enable_priority":true}`)
	got.want(t, http.StatusOK, "")
	want := map[string]any{
		"name": "orders", "type": "fifo", "dead_letter_queue": "letters", "max_retries": 4.0,
		"message_retention_days": 2.5, "visibility_timeout_default": 60.0, "enable_priority": true,
	}
	if diff := cmp.Diff(want, got.fields(t)); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, s.get("/v1/queue/get/orders").fields(t)); diff != "" {
		t.Errorf("get (-want +got):\n%s", diff)
	}
	defaults := map[string]any{
		"name": "letters", "type": "standard", "dead_letter_queue": nil, "max_retries": 5.0,
		"message_retention_days": 14.0, "visibility_timeout_default": 30.0, "enable_priority": false,
	}
	if diff := cmp.Diff(defaults, s.get("/v1/queue/get/letters").fields(t)); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	list := s.get("/v1/queue/list")
	if names := string(list.Data); strings.Index(names, `"letters"`) > strings.Index(names, `"orders"`) || !strings.HasPrefix(names, `{"items":[{"name":`) {
		t.Errorf("list %s", names)
	}
	s.get("/v1/queue/get/other").want(t, http.StatusNotFound, "QUEUE_NOT_FOUND")
}

func TestCreate_Refuses(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"there"}})
	for body, status := range map[string]int{
		`{}`:                         400,
		`{"name":""}`:                400,
		`{"name":"Orders"}`:          400,
		`{"name":"q","type":"heap"}`: 400,
		`{"name":"q","type":1}`:      400,
		`{"name":"q","dead_letter_queue":"missing"}`:      404,
		`{"name":"q","dead_letter_queue":"q"}`:            400,
		`{"name":"q","max_retries":-1}`:                   400,
		`{"name":"q","message_retention_days":31}`:        400,
		`{"name":"q","visibility_timeout_default":0}`:     400,
		`{"name":"q","enable_priority":"yes"}`:            400,
		`{"name":"there","visibility_timeout_default":7}`: 409,
	} {
		if got := s.post("/v1/queue/create", body); got.Status != status || got.OK {
			t.Errorf("%s: status %d, want %d: %s", body, got.Status, status, got.Raw)
		}
	}
	s.create(`{"name":"there"}`)
	s.set("recreate", "409")
	s.post("/v1/queue/create", `{"name":"there"}`).want(t, http.StatusConflict, "QUEUE_ALREADY_EXISTS")
}

func TestStats_CountsByPlace(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	s.create(`{"name":"letters"}`)
	s.create(`{"name":"orders","dead_letter_queue":"letters","max_retries":0}`)
	ids := s.put("orders", 1, 2, 3, 4)
	s.post(publishPath, `{"queue":"orders","payload":{},"delay_seconds":600}`).want(t, http.StatusOK, "")
	s.post("/v1/queue/consume", `{"queue":"orders","max_messages":2,"visibility_timeout":600}`).want(t, http.StatusOK, "")
	s.post("/v1/queue/nack", handled("orders", ids[0])).want(t, http.StatusOK, "")
	s.advance(90 * time.Second)
	got := s.get("/v1/queue/stats/orders").fields(t)
	age, _ := got["oldest_ready_age_seconds"].(float64)
	if age < 90 || age > 150 {
		t.Errorf("oldest age %v, want about 90", age)
	}
	delete(got, "oldest_ready_age_seconds")
	want := map[string]any{"queue": "orders", "ready": 2.0, "delayed": 1.0, "in_flight": 1.0, "dead_letter": 1.0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

func TestDelete_ForgetsTheQueue(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	s.create(`{"name":"letters"}`)
	s.create(`{"name":"orders","dead_letter_queue":"letters"}`)
	s.put("orders", 1)
	s.do(http.MethodDelete, "/v1/queue/delete/letters", `{}`).want(t, http.StatusConflict, "QUEUE_IN_USE")
	s.do(http.MethodDelete, "/v1/queue/delete/orders", ``).want(t, http.StatusOK, "")
	s.do(http.MethodDelete, "/v1/queue/delete/orders", `{}`).want(t, http.StatusNotFound, "QUEUE_NOT_FOUND")
	s.post(publishPath, publish("k", `{}`)).want(t, http.StatusNotFound, "QUEUE_NOT_FOUND")
	s.create(`{"name":"orders"}`)
	if got := s.consume("orders"); len(got) != 0 {
		t.Errorf("a new queue holds %v", got)
	}
}
