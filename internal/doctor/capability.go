package doctor

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
)

// capability is what discovery says about publishing.
type capability struct {
	Method    string
	Path      string
	Available *bool
	Params    json.RawMessage

	broken bool // the answer is not the expected JSON
}

func parseCapability(body []byte) *capability {
	var c capability
	if err := json.Unmarshal(body, &c); err != nil {
		return &capability{broken: true}
	}
	return &c
}

// smallestRequest is a message with the fields that every request has.
var smallestRequest = outbox.Row{Key: "doctor-1", Queue: "orders", Payload: `{"type": "probe"}`}

// requestDoubts compares the description of the request with what the relay
// sends. Params is a JSON Schema, or a bare map from fields to schemas.
func (c *capability) requestDoubts() []string {
	if c.broken {
		return []string{"the description of queue.publish is not the expected JSON"}
	}
	var params map[string]any
	if json.Unmarshal(c.Params, &params) != nil || len(params) == 0 {
		return []string{"the description of queue.publish has no params"}
	}
	fields := params
	if properties, ok := params["properties"].(map[string]any); ok {
		fields = properties
	}
	var doubts []string
	for _, name := range []string{"queue", "payload", "idempotency_key"} {
		if _, ok := fields[name]; !ok {
			doubts = append(doubts, "params has no field "+name)
		}
	}
	if unknown := unknownRequired(params, fields); len(unknown) > 0 {
		doubts = append(doubts, "fields are required that the relay does not send: "+strings.Join(unknown, ", "))
	}
	if len(doubts) == 0 && params["properties"] != nil {
		body, err := infrai.AppendBody(nil, &smallestRequest)
		if err == nil {
			err = validate(c.Params, body)
		}
		if err != nil {
			doubts = append(doubts, "the smallest request of the relay does not fit: "+oneLine(err))
		}
	}
	return doubts
}

// unknownRequired are required fields that a request may lack.
func unknownRequired(params, fields map[string]any) []string {
	var required []string
	if list, ok := params["required"].([]any); ok {
		for _, name := range list {
			if s, ok := name.(string); ok {
				required = append(required, s)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if field, ok := fields[name].(map[string]any); ok && field["required"] == true {
			required = append(required, name)
		}
	}
	return slices.DeleteFunc(required, func(name string) bool {
		return name == "queue" || name == "payload" || name == "idempotency_key"
	})
}

// validate checks a document against a schema. References to other documents
// are not followed.
func validate(schema, document []byte) error {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return err
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(jsonschema.SchemeURLLoader{})
	if err := compiler.AddResource("params.json", parsed); err != nil {
		return err
	}
	compiled, err := compiler.Compile("params.json")
	if err != nil {
		return err
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return err
	}
	return compiled.Validate(instance)
}
