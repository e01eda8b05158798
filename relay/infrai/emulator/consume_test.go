package emulator_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

func (r *rig) create(body string) {
	r.t.Helper()
	r.post("/v1/queue/create", body).want(r.t, http.StatusOK, "")
}

// put publishes numbered messages and returns their ids.
func (r *rig) put(queue string, numbers ...int) (ids []string) {
	r.t.Helper()
	for _, n := range numbers {
		got := r.post(publishPath, fmt.Sprintf(`{"queue":%q,"payload":{"n":%d}}`, queue, n))
		got.want(r.t, http.StatusOK, "")
		ids = append(ids, got.text(r.t, "message_id"))
	}
	return ids
}

func handled(queue, id string) string {
	return fmt.Sprintf(`{"queue":%q,"message_id":%q}`, queue, id)
}

func TestConsume_LeasesUntilTheTimeout(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	s.put("orders", 1, 2, 3)
	if got := s.post("/v1/queue/consume", `{"queue":"orders"}`).items(t, "items"); len(got) != 1 {
		t.Errorf("without max_messages %d came, want 1", len(got))
	}
	got := s.post("/v1/queue/consume", `{"queue":"orders","max_messages":5,"visibility_timeout":60}`).items(t, "items")
	if len(got) != 2 {
		t.Errorf("%d came, want the other 2", len(got))
	}
	s.advance(30 * time.Second)
	if got, want := s.payloads("orders"), `{"n":1}`; got != want {
		t.Errorf("after the default lease %s, want %s", got, want)
	}
	s.advance(30 * time.Second)
	items := s.consume("orders")
	if len(items) != 3 || items[0].ReceiveCount != 3 || items[1].ReceiveCount != 2 {
		t.Errorf("after all leases %+v, want all three with their counts", items)
	}
	for _, bad := range []string{
		`{"queue":"orders","max_messages":0}`, `{"queue":"orders","max_messages":"5"}`, `{"queue":"orders","visibility_timeout":0}`,
		`{"queue":"orders","visibility_timeout":1.5}`,
	} {
		s.post("/v1/queue/consume", bad).want(t, http.StatusBadRequest, "INVALID_ARGUMENT")
	}
	s.post("/v1/queue/consume", `{"queue":"orders","max_messages":1000,"visibility_timeout":999999}`).want(t, http.StatusOK, "")
	s.post("/v1/queue/consume", `{"queue":"other"}`).want(t, http.StatusNotFound, "QUEUE_NOT_FOUND")
}

func TestConsume_Shapes(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	s.set("consume_extras", "off")
	for shape, want := range map[string]string{
		"items": `{"items":[{"message_id":%q,"payload":{"n":1}}]}`, "messages": `{"messages":[{"message_id":%q,"payload":{"n":1}}]}`,
		"array": `[{"message_id":%q,"payload":{"n":1}}]`,
	} {
		s.set("consume_key", shape)
		id := s.put("orders", 1)[0]
		got := s.post("/v1/queue/consume", `{"queue":"orders"}`)
		if want := fmt.Sprintf(want, id); string(got.Data) != want {
			t.Errorf("%s: %s, want %s", shape, got.Data, want)
		}
	}
	s.set("consume_key", "array")
	if got := s.post("/v1/queue/consume", `{"queue":"orders"}`); string(got.Data) != `[]` {
		t.Errorf("an empty queue answers %s", got.Data)
	}
}

func TestNack_GivesBackAndCounts(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	s.create(`{"name":"letters"}`)
	s.create(`{"name":"orders","dead_letter_queue":"letters","max_retries":2}`)
	id := s.put("orders", 1)[0]
	for i := range 3 {
		if got := s.consume("orders"); len(got) != 1 || got[0].MessageID != id {
			t.Fatalf("try %d: consumed %v", i, got)
		}
		if i == 0 {
			s.post("/v1/queue/nack", fmt.Sprintf(`{"queue":"orders","message_id":%q,"delay_seconds":10}`, id)).want(t, http.StatusOK, "")
			if got := s.consume("orders"); len(got) != 0 {
				t.Fatal("a nacked message came before its delay")
			}
			s.advance(10 * time.Second)
			continue
		}
		s.post("/v1/queue/nack", handled("orders", id)).want(t, http.StatusOK, "")
	}
	if got := s.consume("orders"); len(got) != 0 {
		t.Errorf("after three failures %v is still in the queue", got)
	}
	letters := s.get("/v1/queue/dlq/list/orders").items(t, "items")
	if len(letters) != 1 || letters[0].MessageID != id || letters[0].Failures != 3 || string(letters[0].Payload) != `{"n":1}` {
		t.Errorf("dead letters %+v", letters)
	}
	if got, want := s.payloads("letters"), `{"n":1}`; got != want {
		t.Errorf("the dead letter queue, consumed like any other: %s, want %s", got, want)
	}
	s.post("/v1/queue/nack", handled("orders", id)).want(t, http.StatusNotFound, "MESSAGE_NOT_FOUND")
}

func TestLeaseExpiry_CountsLikeANack(t *testing.T) {
	t.Parallel()
	for counts, letters := range map[string]int{"on": 1, "off": 0} {
		s := start(t, emulator.Config{Settings: emulator.Settings{LeaseExpiryCounts: counts}})
		s.create(`{"name":"letters"}`)
		s.create(`{"name":"orders","dead_letter_queue":"letters","max_retries":0}`)
		s.put("orders", 1)
		s.consume("orders")
		s.advance(time.Minute)
		s.consume("orders")
		if got := s.get("/v1/queue/dlq/list/orders").items(t, "items"); len(got) != letters {
			t.Errorf("lease_expiry_counts=%s: %d dead letters, want %d", counts, len(got), letters)
		}
	}
}

func TestAck_AfterTheLease(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	ids := s.put("orders", 1, 2)
	s.consume("orders")
	s.advance(time.Minute)
	s.post("/v1/queue/ack", handled("orders", ids[0])).want(t, http.StatusOK, "")
	s.set("late_ack", "404")
	s.post("/v1/queue/ack", handled("orders", ids[1])).want(t, http.StatusNotFound, "MESSAGE_NOT_FOUND")
	s.consume("orders")
	s.post("/v1/queue/ack", handled("orders", ids[1])).want(t, http.StatusOK, "")
}

func TestRedrive_PutsBackWhereItCameFrom(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (*rig, []string) {
		s := start(t, emulator.Config{})
		s.create(`{"name":"letters"}`)
		for _, queue := range []string{"orders", "mails"} {
			s.create(fmt.Sprintf(`{"name":%q,"dead_letter_queue":"letters","max_retries":0}`, queue))
		}
		ids := append(s.put("orders", 1, 2), s.put("mails", 3)...)
		s.consume("orders")
		s.consume("mails")
		s.advance(time.Minute)
		s.put("orders", 4)
		return s, ids
	}
	redriven := func(t *testing.T, s *rig, path string) (n int) {
		t.Helper()
		got := s.post(path, "", "Idempotency-Key", "redrive-1")
		got.want(t, http.StatusOK, "")
		var data struct {
			Redriven int `json:"redriven"`
		}
		if err := json.Unmarshal(got.Data, &data); err != nil {
			t.Fatal(err)
		}
		return data.Redriven
	}
	t.Run("by source", func(t *testing.T) {
		t.Parallel()
		s, ids := setup(t)
		s.consume("mails") // its lease has ended, which makes it a dead letter
		if n := redriven(t, s, "/v1/queue/dlq/redrive/orders"); n != 2 {
			t.Errorf("%d redriven, want 2", n)
		}
		if n := redriven(t, s, "/v1/queue/dlq/redrive/orders"); n != 2 {
			t.Errorf("repeated with its key: %d redriven, want the same answer", n)
		}
		got := s.consume("orders")
		if len(got) != 3 || got[0].MessageID != ids[0] || got[1].MessageID != ids[1] {
			t.Errorf("consumed %+v, want the redriven ones first, with their ids", got)
		}
		if got := s.get("/v1/queue/dlq/list/mails").items(t, "items"); len(got) != 1 {
			t.Errorf("%d dead letters of the other queue, want 1", len(got))
		}
	})
	t.Run("by dead letter queue, with new ids and old failures", func(t *testing.T) {
		t.Parallel()
		s, ids := setup(t)
		s.consume("orders")
		s.consume("mails")
		s.set("redrive_path", "dlq")
		s.set("redrive_id", "new")
		s.set("redrive_resets", "off")
		if n := redriven(t, s, "/v1/queue/dlq/redrive/letters"); n != 3 {
			t.Errorf("%d redriven, want 3", n)
		}
		got := s.consume("mails")
		if len(got) != 1 || got[0].MessageID == ids[2] {
			t.Errorf("consumed %+v, want another id than %s", got, ids[2])
		}
		s.advance(time.Minute)
		s.consume("mails")
		letters := s.get("/v1/queue/dlq/list/letters").items(t, "items")
		if len(letters) != 1 || letters[0].Failures != 2 {
			t.Errorf("dead letters %+v, want the failures to add up", letters)
		}
	})
}

// In a FIFO queue nothing overtakes what is leased or waits for another try.
func TestConsume_FIFO(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	s.create(`{"name":"orders","type":"fifo"}`)
	ids := s.put("orders", 1, 2, 3)
	one := func() string {
		t.Helper()
		got := s.post("/v1/queue/consume", `{"queue":"orders"}`).items(t, "items")
		if len(got) == 0 {
			return "nothing"
		}
		return string(got[0].Payload)
	}
	if got := one(); got != `{"n":1}` {
		t.Fatalf("first %s", got)
	}
	if got := one(); got != "nothing" {
		t.Errorf("%s overtook the first", got)
	}
	s.post("/v1/queue/nack", fmt.Sprintf(`{"queue":"orders","message_id":%q,"delay_seconds":60}`, ids[0])).want(t, http.StatusOK, "")
	if got := one(); got != "nothing" {
		t.Errorf("%s overtook a message that waits for another try", got)
	}
	s.advance(time.Minute)
	if got, want := s.payloads("orders"), `{"n":1} {"n":2} {"n":3}`; got != want {
		t.Errorf("then %s, want %s", got, want)
	}
}

func TestConsume_FIFOGroups(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Settings: emulator.Settings{FIFOScope: "group"}})
	s.create(`{"name":"orders","type":"fifo"}`)
	for i, group := range []string{"a", "a", "b"} {
		s.post(publishPath, fmt.Sprintf(`{"queue":"orders","message_group_id":%q,"payload":{"n":%d}}`, group, i+1)).want(t, http.StatusOK, "")
	}
	s.post("/v1/queue/consume", `{"queue":"orders"}`).want(t, http.StatusOK, "")
	if got, want := s.payloads("orders"), `{"n":3}`; got != want {
		t.Errorf("behind a leased message of group a came %s, want %s", got, want)
	}
}

func TestConsume_FIFODelay(t *testing.T) {
	t.Parallel()
	for delay, want := range map[string]string{"pass": `{"n":2}`, "block": ""} {
		s := start(t, emulator.Config{Settings: emulator.Settings{FIFODelay: delay}})
		s.create(`{"name":"orders","type":"fifo"}`)
		s.post(publishPath, `{"queue":"orders","payload":{"n":1},"delay_seconds":60}`).want(t, http.StatusOK, "")
		s.put("orders", 2)
		if got := s.payloads("orders"); got != want {
			t.Errorf("fifo_delay=%s: %q, want %q", delay, got, want)
		}
	}
}

func TestRetention_DropsOldMessages(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	s.create(`{"name":"orders","message_retention_days":2}`)
	s.put("orders", 1)
	s.advance(24 * time.Hour)
	s.put("orders", 2)
	s.advance(24 * time.Hour)
	if got, want := s.payloads("orders"), `{"n":2}`; got != want {
		t.Errorf("after two days %s, want %s", got, want)
	}
	if n := s.Counters().Expired; n != 1 {
		t.Errorf("%d expired, want 1", n)
	}
}
