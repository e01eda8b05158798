package emulator_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// publish is the body of a publish to "orders".
func publish(key, payload string) string {
	return fmt.Sprintf(`{"idempotency_key":%q,"payload":%s,"queue":"orders"}`, key, payload)
}

// ids consumes up to ten messages of a queue and returns their ids.
func (r *rig) consume(queue string) []item {
	r.t.Helper()
	got := r.post("/v1/queue/consume", fmt.Sprintf(`{"queue":%q,"max_messages":10}`, queue))
	got.want(r.t, http.StatusOK, "")
	return got.items(r.t, "items")
}

// payloads consumes up to ten messages and returns their payloads.
func (r *rig) payloads(queue string) string {
	r.t.Helper()
	var all []string
	for _, m := range r.consume(queue) {
		all = append(all, string(m.Payload))
	}
	return strings.Join(all, " ")
}

func (r *rig) advance(d time.Duration) {
	r.t.Helper()
	if err := r.Clock().Advance(d); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) set(name, value string) {
	r.t.Helper()
	settings := r.Settings()
	if err := settings.Set(name, value); err != nil {
		r.t.Fatal(err)
	}
	if err := r.SetSettings(settings); err != nil {
		r.t.Fatal(err)
	}
}

func TestPublish_AcceptsConsumesAndAcks(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	const payload = `{"n":1234567890123456789012345678901234567890,"f":1.10}`
	published := s.post("/v1/queue/publish", publish("k1", payload))
	published.want(t, http.StatusOK, "")
	id := published.text(t, "message_id")

	items := s.consume("orders")
	if len(items) != 1 || items[0].MessageID != id {
		t.Fatalf("consumed %v, want the message %s", items, id)
	}
	if got := string(items[0].Payload); got != payload {
		t.Errorf("payload %s, want %s", got, payload)
	}
	s.post("/v1/queue/ack", `{"queue":"orders","message_id":"`+id+`"}`).want(t, http.StatusOK, "")
	s.post("/v1/queue/ack", `{"queue":"orders","message_id":"`+id+`"}`).want(t, http.StatusNotFound, "MESSAGE_NOT_FOUND")
	s.advance(time.Hour)
	if got := s.consume("orders"); len(got) != 0 {
		t.Errorf("consumed %v after the ack", got)
	}
}

func TestPublish_AnswersInTheEnvelope(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	got := s.post("/v1/queue/publish", publish("k1", `{}`))
	var whole struct {
		OK       *bool           `json:"ok"`
		Data     json.RawMessage `json:"data"`
		Error    json.RawMessage `json:"error"`
		Metadata struct {
			Cost      *float64 `json:"cost_usd"`
			Latency   *float64 `json:"latency_ms"`
			Vendor    string   `json:"vendor"`
			CacheHit  *bool    `json:"cache_hit"`
			RequestID string   `json:"request_id"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(got.Raw, &whole); err != nil {
		t.Fatal(err)
	}
	m := whole.Metadata
	if whole.OK == nil || !*whole.OK || string(whole.Error) != "null" || m.Cost == nil || m.Latency == nil || m.Vendor != "emulator" || m.CacheHit == nil {
		t.Errorf("envelope %s", got.Raw)
	}
	uuid7 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if !uuid7.MatchString(m.RequestID) || got.Header.Get("X-Infrai-Request-Id") != m.RequestID {
		t.Errorf("request id %q, header %q, want one UUID of version 7", m.RequestID, got.Header.Get("X-Infrai-Request-Id"))
	}
	failure := s.post("/v1/queue/publish", `{"queue":"orders"}`)
	if want := `{"ok":false,"data":null,"error":{"code":"INVALID_ARGUMENT","message":"payload is missing"},"metadata":{}}` + "\n"; string(failure.Raw) != want {
		t.Errorf("failure %s, want %s", failure.Raw, want)
	}
	s.set("success_status", "201")
	s.set("request_id_header", "off")
	got = s.post("/v1/queue/publish", publish("k2", `{}`))
	got.want(t, http.StatusCreated, "")
	if id := got.Header.Get("X-Infrai-Request-Id"); id != "" {
		t.Errorf("request id header %q although it is off", id)
	}
}

func TestPublish_NeedsAKey(t *testing.T) {
	t.Parallel()
	open := start(t, emulator.Config{Queues: []string{"orders"}})
	open.post("/v1/queue/publish", publish("k", `{}`), "Authorization", "").want(t, http.StatusUnauthorized, "UNAUTHORIZED")
	open.post("/v1/queue/publish", publish("k", `{}`), "Authorization", "Bearer ").want(t, http.StatusUnauthorized, "UNAUTHORIZED")
	open.post("/v1/queue/publish", publish("k", `{}`), "Authorization", "Basic x").want(t, http.StatusUnauthorized, "UNAUTHORIZED")
	open.post("/v1/queue/publish", publish("k", `{}`), "Authorization", "Bearer x").want(t, http.StatusOK, "")

	one := start(t, emulator.Config{Queues: []string{"orders"}, APIKey: "ifr_one"})
	one.post("/v1/queue/publish", publish("k", `{}`), "Authorization", "Bearer other").want(t, http.StatusUnauthorized, "UNAUTHORIZED")
	one.post("/v1/queue/publish", publish("k", `{}`), "Authorization", "Bearer ifr_one").want(t, http.StatusOK, "")
}

func TestPublish_RefusesWhatIsNoMessage(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	for body, want := range map[string]struct {
		status int
		code   string
	}{
		``:                                    {400, "INVALID_ARGUMENT"},
		`{}`:                                  {400, "INVALID_ARGUMENT"},
		`[]`:                                  {400, "INVALID_JSON"},
		`{"queue":"orders","payload":{}`:      {400, "INVALID_JSON"},
		`{"queue":"orders","payload":{}} {}`:  {400, "INVALID_JSON"},
		`{"queue":"orders"}`:                  {400, "INVALID_ARGUMENT"},
		`{"payload":{}}`:                      {400, "INVALID_ARGUMENT"},
		`{"queue":5,"payload":{}}`:            {400, "INVALID_ARGUMENT"},
		`{"queue":"orders","payload":[]}`:     {400, "INVALID_ARGUMENT"},
		`{"queue":"orders","payload":null}`:   {400, "INVALID_ARGUMENT"},
		`{"queue":"orders","payload":"text"}`: {400, "INVALID_ARGUMENT"},
		`{"queue":"other","payload":{}}`:      {404, "QUEUE_NOT_FOUND"},
		`{"queue":"orders","payload":{},"delay_seconds":604801}`:                                 {400, "INVALID_ARGUMENT"},
		`{"queue":"orders","payload":{},"delay_seconds":-1}`:                                     {400, "INVALID_ARGUMENT"},
		`{"queue":"orders","payload":{},"delay_seconds":"5"}`:                                    {400, "INVALID_ARGUMENT"},
		`{"queue":"orders","payload":{},"priority":10}`:                                          {400, "INVALID_ARGUMENT"},
		`{"queue":"orders","payload":{},"priority":1.5}`:                                         {400, "INVALID_ARGUMENT"},
		`{"queue":"orders","payload":{},"idempotency_key":7}`:                                    {400, "INVALID_ARGUMENT"},
		`{"queue":"orders","payload":{},"idempotency_key":"` + strings.Repeat("k", 129) + `"}`:   {400, "INVALID_ARGUMENT"},
		`{"queue":"orders","payload":{"x":"` + strings.Repeat("x", 262_137) + `"}}`:              {413, "PAYLOAD_TOO_LARGE"},
		`{"queue":"orders","payload":{"x":"` + strings.Repeat("x", 3<<20) + `"}}`:                {413, "PAYLOAD_TOO_LARGE"},
		`{"queue":"orders","payload":{},"delay_seconds":604800,"priority":9,"new":1}`:            {200, ""},
		`{"queue":"orders","payload":{"x":"` + strings.Repeat("x", 262_136) + `"}}`:              {200, ""},
		`{"queue":"orders","payload":{},"delay_seconds":null,"priority":null,"message_id":null}`: {200, ""},
	} {
		s.post("/v1/queue/publish", body).want(t, want.status, want.code)
	}
	s.get("/v1/queue/publish").want(t, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
	s.post("/v1/queue/purge", `{}`).want(t, http.StatusNotFound, "ROUTE_NOT_FOUND")
	s.get("/v1/queue/get/a/b").want(t, http.StatusNotFound, "ROUTE_NOT_FOUND")
}

func TestPublish_SizeSwitches(t *testing.T) {
	t.Parallel()
	body := func(size int) string {
		return `{"queue":"orders","payload":{"x":"` + strings.Repeat("x", size-8) + `"}}`
	}
	const frame = len(`{"queue":"orders","payload":}`)
	for _, test := range []struct {
		basis, kb, oversize string
		payload             int
		status              int
	}{
		{"payload", "1024", "413", 262_144, 200},
		{"payload", "1024", "413", 262_145, 413},
		{"payload", "1000", "400", 256_000, 200},
		{"payload", "1000", "400", 256_001, 400},
		{"body", "1000", "413", 256_000 - frame, 200},
		{"body", "1000", "413", 256_001 - frame, 413},
	} {
		s := start(t, emulator.Config{
			Queues:   []string{"orders"},
			Settings: emulator.Settings{SizeBasis: test.basis, KB: test.kb, OversizeStatus: test.oversize},
		})
		if got := s.post("/v1/queue/publish", body(test.payload)); got.Status != test.status {
			t.Errorf("%+v: status %d", test, got.Status)
		}
	}
}

func TestPublish_OtherSwitches(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	s.set("auto_create", "on")
	s.post("/v1/queue/publish", publish("k1", `{}`)).want(t, http.StatusOK, "")
	s.set("payload", "any")
	s.post("/v1/queue/publish", publish("k2", `[1, 2]`)).want(t, http.StatusOK, "")
	if got, want := s.payloads("orders"), `{} [1, 2]`; got != want {
		t.Errorf("consumed %s, want %s", got, want)
	}
	s.set("unknown_fields", "reject")
	s.post("/v1/queue/publish", `{"queue":"orders","payload":{},"topic":"x"}`).want(t, http.StatusBadRequest, "INVALID_ARGUMENT")
}

func TestPublish_LogsUnknownFieldsOnce(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	s := emulator.New(emulator.Config{Queues: []string{"orders"}}, emulator.WithLogger(zap.New(core)))
	r := serve(t, s)
	for range 3 {
		r.post("/v1/queue/publish", `{"queue":"orders","payload":{"secret":1},"topic":"x","group":1}`).want(t, http.StatusOK, "")
	}
	var fields []string
	for _, line := range logs.All() {
		fields = append(fields, fmt.Sprint(line.Message, " ", line.ContextMap()["field"]))
	}
	if got, want := strings.Join(fields, ", "), "unknown field ignored topic, unknown field ignored group"; got != want {
		t.Errorf("logged %s, want %s", got, want)
	}
}

// A delayed message is not there before its time.
func TestPublish_Delays(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	s.Clock().Freeze()
	s.post("/v1/queue/publish", `{"queue":"orders","payload":{"n":1},"delay_seconds":1.5}`).want(t, http.StatusOK, "")
	s.post("/v1/queue/publish", `{"queue":"orders","payload":{"n":2}}`).want(t, http.StatusOK, "")
	if got, want := s.payloads("orders"), `{"n":2}`; got != want {
		t.Errorf("at once %s, want %s", got, want)
	}
	s.advance(1500 * time.Millisecond)
	if got, want := s.payloads("orders"), `{"n":1}`; got != want {
		t.Errorf("later %s, want %s", got, want)
	}
}

func TestPublish_PriorityCountsWhereItIsEnabled(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	for queue, want := range map[string]string{"plain": "0 9 5", "urgent": "9 5 0"} {
		s.post("/v1/queue/create", fmt.Sprintf(`{"name":%q,"enable_priority":%t}`, queue, queue == "urgent")).want(t, http.StatusOK, "")
		for _, priority := range []int{0, 9, 5} {
			s.post("/v1/queue/publish", fmt.Sprintf(`{"queue":%q,"priority":%d,"payload":{"p":%[2]d}}`, queue, priority)).want(t, http.StatusOK, "")
		}
		got := strings.NewReplacer(`{"p":`, "", `}`, "").Replace(s.payloads(queue))
		if got != want {
			t.Errorf("%s: order %s, want %s", queue, got, want)
		}
	}
}

func TestPublish_RateLimit(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}, Settings: emulator.Settings{RateLimit: 2}})
	limited := 0
	for i := range 50 {
		got := s.post("/v1/queue/publish", publish(fmt.Sprint(i), `{}`))
		if got.Status != http.StatusTooManyRequests {
			continue
		}
		limited++
		got.want(t, http.StatusTooManyRequests, "RATE_LIMITED")
		if after := got.Header.Get("Retry-After"); after != "1" {
			t.Fatalf("Retry-After %q, want 1", after)
		}
	}
	if limited == 0 {
		t.Error("50 calls at once met no limit of 2 a second")
	}
}

func TestPublishBatch_TakesAllOrNone(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	const path = "/v1/queue/publish_batch"
	got := s.post(path, `{"queue":"orders","messages":[{"payload":{"n":1}},{"payload":{"n":2},"delay_seconds":60}],"idempotency_key":"b1"}`)
	got.want(t, http.StatusOK, "")
	if n := len(got.items(t, "items")); n != 2 {
		t.Errorf("%d ids, want 2", n)
	}
	again := s.post(path, `{"queue":"orders","messages":[{"payload":{"n":1}},{"payload":{"n":2},"delay_seconds":60}],"idempotency_key":"b1"}`)
	if string(again.Data) != string(got.Data) {
		t.Errorf("the repeated batch answers %s, want %s", again.Data, got.Data)
	}
	for _, bad := range []string{
		`{"queue":"orders","messages":[]}`,
		`{"queue":"orders","messages":{}}`,
		`{"queue":"orders","messages":[{"payload":{}},{"payload":1}]}`,
		`{"queue":"orders","messages":[{"payload":{}},{}]}`,
		`{"queue":"orders","messages":[{"payload":{}},7]}`,
		`{"queue":"orders","messages":[{"payload":{},"priority":-1}]}`,
		`{"queue":"orders","messages":[` + strings.Repeat(`{"payload":{}},`, 100) + `{"payload":{}}]}`,
	} {
		s.post(path, bad).want(t, http.StatusBadRequest, "INVALID_ARGUMENT")
	}
	if got, want := s.payloads("orders"), `{"n":1}`; got != want {
		t.Errorf("consumed %s, want %s", got, want)
	}
	s.set("batch", "off")
	s.post(path, `{"queue":"orders","messages":[{"payload":{}}]}`).want(t, http.StatusNotFound, "ROUTE_NOT_FOUND")
}
