package emulator_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

type capability struct {
	ID         string          `json:"id"`
	Method     string          `json:"method"`
	Path       string          `json:"path"`
	Available  bool            `json:"available"`
	Idempotent bool            `json:"idempotent"`
	Params     json.RawMessage `json:"params"`
}

func TestDiscovery_DescribesTheRoutes(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	var index struct {
		Capabilities []capability `json:"capabilities"`
	}
	if err := json.Unmarshal(s.do(http.MethodGet, "/v1/discovery", ``, "Authorization", "").Raw, &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Capabilities) != 13 {
		t.Errorf("%d capabilities, want 13", len(index.Capabilities))
	}
	for _, listed := range index.Capabilities {
		var one capability
		got := s.do(http.MethodGet, "/v1/discovery/"+listed.ID, ``, "Authorization", "")
		if err := json.Unmarshal(got.Raw, &one); err != nil {
			t.Fatalf("%s: %s: %v", listed.ID, got.Raw, err)
		}
		if one.Path != listed.Path || one.Method != listed.Method || !one.Available || one.ID != listed.ID {
			t.Errorf("%+v is listed as %+v", one, listed)
		}
		compile(t, one.Params)
		path := strings.NewReplacer("{queue}", "nowhere", "{id}", "nothing").Replace(one.Path)
		if got := s.do(one.Method, path, `{}`); got.Error != nil && got.Error.Code == "ROUTE_NOT_FOUND" {
			t.Errorf("%s is not served at %s %s", one.ID, one.Method, path)
		}
	}
	s.get("/v1/discovery/queue.purge").want(t, http.StatusNotFound, "CAPABILITY_NOT_FOUND")
}

// The schema takes what the route takes, and refuses what it refuses.
func TestDiscovery_SchemasAreHonest(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	schema := func(id string) *jsonschema.Schema {
		var one capability
		if err := json.Unmarshal(s.get("/v1/discovery/"+id).Raw, &one); err != nil {
			t.Fatal(err)
		}
		return compile(t, one.Params)
	}
	for id, bodies := range map[string][]string{
		"queue.publish": {
			`{"queue":"orders","payload":{}}`, `{"queue":"orders","payload":{},"delay_seconds":1.5,"priority":9,"idempotency_key":"k"}`,
			`{"queue":"orders"}`, `{"payload":{}}`, `{"queue":"orders","payload":[]}`, `{"queue":"orders","payload":{},"delay_seconds":604801}`,
			`{"queue":"orders","payload":{},"priority":10}`, `{"queue":"orders","payload":{},"more":1}`, `{"queue":7,"payload":{}}`,
		},
		"queue.consume": {
			`{"queue":"orders"}`, `{"queue":"orders","max_messages":10,"visibility_timeout":60}`, `{}`, `{"queue":"orders","max_messages":0}`,
			`{"queue":"orders","visibility_timeout":1.5}`,
		},
		"queue.create": {
			`{"name":"new"}`, `{"name":"newer","type":"fifo","max_retries":3,"message_retention_days":30,"enable_priority":true}`,
			`{"name":"Bad"}`, `{"name":"q","type":"heap"}`, `{"name":"q","message_retention_days":31}`, `{"name":"q","enable_priority":1}`,
		},
		"queue.publish_batch": {
			`{"queue":"orders","messages":[{"payload":{}}]}`, `{"queue":"orders","messages":[]}`, `{"queue":"orders","messages":[{}]}`,
		},
	} {
		validator := schema(id)
		for _, body := range bodies {
			instance, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			taken := s.post("/v1/queue/"+strings.TrimPrefix(id, "queue."), body)
			if valid := validator.Validate(instance) == nil; valid != taken.OK {
				t.Errorf("%s %s: valid %t, but the answer is %s", id, body, valid, taken.Raw)
			}
		}
	}
	s.set("unknown_fields", "reject")
	instance, _ := jsonschema.UnmarshalJSON(strings.NewReader(`{"queue":"orders","payload":{},"more":1}`))
	if schema("queue.publish").Validate(instance) == nil {
		t.Error("the schema takes fields that are rejected")
	}
	s.set("discovery_params", "fields")
	var one capability
	if err := json.Unmarshal(s.get("/v1/discovery/queue.publish").Raw, &one); err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(one.Params, []byte(`{"queue":{"type":"string"`)) {
		t.Errorf("a bare map of fields: %s", one.Params)
	}
}

func compile(t *testing.T, params json.RawMessage) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(params))
	if err != nil {
		t.Fatalf("params %s: %v", params, err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("params.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("params.json")
	if err != nil {
		t.Fatalf("params %s: %v", params, err)
	}
	return compiled
}
