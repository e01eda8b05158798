package emulator_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

const publishPath = "/v1/queue/publish"

func TestKeys_RepeatTheAnswerForADay(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	first := s.post(publishPath, publish("k", `{"n":1}`))
	s.advance(24*time.Hour - time.Minute)
	again := s.post(publishPath, publish("k", `{"n":1}`))
	again.want(t, http.StatusOK, "")
	if string(first.Data) != string(again.Data) {
		t.Errorf("within a day %s, want %s", again.Data, first.Data)
	}
	if first.Metadata.RequestID == again.Metadata.RequestID {
		t.Error("the repeated request has the id of the first")
	}
	s.advance(time.Minute)
	later := s.post(publishPath, publish("k", `{"n":1}`))
	if string(first.Data) == string(later.Data) {
		t.Errorf("after a day still %s", later.Data)
	}
	if got := s.Counters(); got.Accepted != 2 || got.Replayed != 1 {
		t.Errorf("%d accepted, %d replayed, want 2 and 1", got.Accepted, got.Replayed)
	}
}

func TestKeys_Conflict(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	first := s.post(publishPath, publish("k", `{"n":1}`))
	s.post(publishPath, publish("k", `{"n":2}`)).want(t, http.StatusConflict, "IDEMPOTENCY_CONFLICT")
	s.set("key_conflict", "422")
	s.post(publishPath, publish("k", `{"n":2}`)).want(t, http.StatusUnprocessableEntity, "IDEMPOTENCY_CONFLICT")
	s.set("key_conflict", "replay")
	replayed := s.post(publishPath, publish("k", `{"n":2}`))
	replayed.want(t, http.StatusOK, "")
	if string(first.Data) != string(replayed.Data) {
		t.Errorf("replayed %s, want %s", replayed.Data, first.Data)
	}
	if got := s.Counters(); got.Accepted != 1 || got.Conflicting != 2 || got.Replayed != 1 {
		t.Errorf("counters %+v", got)
	}
}

func TestKeys_HeaderAndBody(t *testing.T) {
	t.Parallel()
	const bare = `{"queue":"orders","payload":{}}`
	for _, test := range []struct{ source, header, body, want string }{
		{"both", "h", "", "h"},
		{"both", "", "b", "b"},
		{"both", "same", "same", "same"},
		{"both", "h", "b", "400"},
		{"header", "h", "b", "h"},
		{"header", "", "b", ""},
		{"body", "h", "b", "b"},
		{"body", "h", "", ""},
	} {
		s := start(t, emulator.Config{Queues: []string{"orders"}, Settings: emulator.Settings{KeySource: test.source}})
		body := bare
		if test.body != "" {
			body = publish(test.body, `{}`)
		}
		got := s.post(publishPath, body, "Idempotency-Key", test.header)
		if test.want == "400" {
			got.want(t, http.StatusBadRequest, "IDEMPOTENCY_KEY_MISMATCH")
			continue
		}
		got.want(t, http.StatusOK, "")
		if entry := s.Journal().Entries(0, 0)[0]; entry.Key != test.want {
			t.Errorf("%+v: key %q", test, entry.Key)
		}
	}
}

func TestKeys_OtherSwitches(t *testing.T) {
	t.Parallel()
	const bare = `{"queue":"orders","payload":{}}`
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	same := func(body string) bool {
		t.Helper()
		first, second := s.post(publishPath, body), s.post(publishPath, body)
		return string(first.Data) == string(second.Data)
	}
	if same(bare) {
		t.Error("two publishes without a key are one message")
	}
	s.set("derived_key", "on")
	if !same(bare) {
		t.Error("with derived keys two equal publishes are two messages")
	}
	s.set("platform_idempotency", "off")
	if same(publish("k", `{}`)) {
		t.Error("without the platform's keys one key is still one message")
	}
	s.set("platform_idempotency", "on")

	s.set("remember_refusals", "on")
	s.post(publishPath, `{"idempotency_key":"early","payload":{},"queue":"later"}`).want(t, http.StatusNotFound, "QUEUE_NOT_FOUND")
	s.post("/v1/queue/create", `{"name":"later"}`).want(t, http.StatusOK, "")
	s.post(publishPath, `{"idempotency_key":"early","payload":{},"queue":"later"}`).want(t, http.StatusNotFound, "QUEUE_NOT_FOUND")
	s.post(publishPath, `{"idempotency_key":"other","payload":{},"queue":"later"}`).want(t, http.StatusOK, "")
}

func TestKeys_InFlight(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}, Settings: emulator.Settings{KeyInFlight: "409"}})
	s.script(emulator.Fault{Key: "k", Count: 1, Store: true, Hang: true})
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = s.try(http.MethodPost, publishPath, publish("k", `{}`)) })
	s.wait(1)
	s.post(publishPath, publish("k", `{}`)).want(t, http.StatusConflict, "IDEMPOTENCY_IN_FLIGHT")
	s.post(publishPath, publish("other", `{}`)).want(t, http.StatusOK, "")
	s.Close()
	wg.Wait()
	s.post(publishPath, publish("k", `{}`)).want(t, http.StatusOK, "")
}

func TestKeys_AreBounded(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}, MaxKeys: 3})
	for i := range 4 {
		s.post(publishPath, publish(fmt.Sprint(i), `{}`)).want(t, http.StatusOK, "")
	}
	for _, key := range []string{"0", "3"} {
		s.post(publishPath, publish(key, `{}`)).want(t, http.StatusOK, "")
	}
	if got := s.Counters(); got.Accepted != 5 || got.Replayed != 1 {
		t.Errorf("%d accepted, %d replayed, want the oldest of four keys forgotten", got.Accepted, got.Replayed)
	}
}

// A key belongs to its route: an ack with a publish's key is an ack.
func TestKeys_OfOtherRoutes(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	id := s.post(publishPath, publish("k", `{}`)).text(t, "message_id")
	s.consume("orders")
	ack := `{"queue":"orders","message_id":"` + id + `"}`
	s.post("/v1/queue/ack", ack, "Idempotency-Key", "k").want(t, http.StatusOK, "")
	s.post("/v1/queue/ack", ack, "Idempotency-Key", "k").want(t, http.StatusOK, "")
	s.post("/v1/queue/ack", ack).want(t, http.StatusNotFound, "MESSAGE_NOT_FOUND")
}

// A FIFO queue drops a second message with one key within five minutes, from the
// first acceptance on, whatever the platform remembers.
func TestKeys_FIFOWindow(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Settings: emulator.Settings{PlatformIdempotency: "off"}})
	s.post("/v1/queue/create", `{"name":"orders","type":"fifo"}`).want(t, http.StatusOK, "")
	first := s.post(publishPath, publish("k", `{"n":1}`))
	s.advance(4 * time.Minute)
	dropped := s.post(publishPath, publish("k", `{"n":2}`))
	dropped.want(t, http.StatusOK, "")
	if string(dropped.Data) != string(first.Data) {
		t.Errorf("within the window %s, want %s", dropped.Data, first.Data)
	}
	s.advance(61 * time.Second)
	s.post(publishPath, publish("k", `{"n":3}`)).want(t, http.StatusOK, "")
	if got, want := s.payloads("orders"), `{"n":1} {"n":3}`; got != want {
		t.Errorf("consumed %s, want %s", got, want)
	}
	if got := s.Counters(); got.Deduplicated != 1 {
		t.Errorf("%d deduplicated, want 1", got.Deduplicated)
	}

	s.set("platform_idempotency", "on")
	s.post(publishPath, publish("p", `{}`)).want(t, http.StatusOK, "")
	s.advance(301 * time.Second)
	s.post(publishPath, publish("p", `{}`)).want(t, http.StatusOK, "")
	if got := s.Counters(); got.Replayed != 1 {
		t.Errorf("%d replayed, want the platform's window to outlast the queue's", got.Replayed)
	}
}
