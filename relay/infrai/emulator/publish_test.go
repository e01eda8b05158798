package emulator_test

import (
	"net/http"
	"testing"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

func TestPublish_AcceptsAndConsumes(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})

	published := s.post("/v1/queue/publish", `{"idempotency_key":"k1","payload":{"n":1234567890123456789012345678901234567890,"f":1.10},"queue":"orders"}`)
	published.want(t, http.StatusOK, "")
	id := published.text(t, "message_id")

	got := s.post("/v1/queue/consume", `{"queue":"orders","max_messages":10,"visibility_timeout":30}`)
	got.want(t, http.StatusOK, "")
	items := got.items(t, "items")
	if len(items) != 1 || items[0].MessageID != id {
		t.Fatalf("consumed %v, want the message %s", items, id)
	}
	if got, want := string(items[0].Payload), `{"n":1234567890123456789012345678901234567890,"f":1.10}`; got != want {
		t.Errorf("payload %s, want %s", got, want)
	}

	s.post("/v1/queue/ack", `{"queue":"orders","message_id":"`+id+`"}`).want(t, http.StatusOK, "")
	s.post("/v1/queue/ack", `{"queue":"orders","message_id":"`+id+`"}`).want(t, http.StatusNotFound, "MESSAGE_NOT_FOUND")
}
