// Package capability reads what discovery says about one call of the queue, and
// compares it with what this program sends.
//
// Discovery is the queue's own description of its calls. Nothing depends on it
// at run time: a description that does not fit is a doubt for a person, not a
// reason to stop publishing.
package capability

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
)

// Capability is what discovery says about one call. What it leaves out is empty
// or nil.
type Capability struct {
	ID         string          `json:"id"`
	Method     string          `json:"method"`
	Path       string          `json:"path"`
	Available  *bool           `json:"available"`
	Idempotent *bool           `json:"idempotent"`
	Summary    string          `json:"summary"`
	Params     json.RawMessage `json:"params"` // a JSON Schema, or a bare map from fields to schemas
}

var errNoDescription = errors.New("the description is not the expected JSON")

// Parse reads the answer of discovery about one call.
func Parse(body []byte) (*Capability, error) {
	var c *Capability
	if json.Unmarshal(body, &c) != nil || c == nil {
		return nil, errNoDescription
	}
	return c, nil
}

// ParseIndex reads the answer of discovery about all calls.
func ParseIndex(body []byte) ([]Capability, error) {
	var index struct{ Capabilities []Capability }
	if json.Unmarshal(body, &index) != nil || index.Capabilities == nil {
		return nil, errNoDescription
	}
	return index.Capabilities, nil
}

// Field is one field of a request.
type Field struct {
	Name string `json:"name"`
	// Type is the JSON type; empty if the description does not say one.
	Type     string `json:"type"`
	Required bool   `json:"required"`
}

// Fields lists the fields of the request by name. There are none where Params
// has none, or is something else than expected.
func (c *Capability) Fields() []Field {
	p, ok := c.params()
	if !ok {
		return nil
	}
	required := p.required()
	var list []Field
	for _, name := range slices.Sorted(maps.Keys(p.fields)) {
		f := Field{Name: name, Required: slices.Contains(required, name)}
		if schema, ok := p.fields[name].(map[string]any); ok {
			f.Type, _ = schema["type"].(string)
		}
		list = append(list, f)
	}
	return list
}

// params is a description of a request in either form.
type params struct {
	whole  map[string]any
	fields map[string]any
	schema bool // whole is a JSON Schema
}

func (c *Capability) params() (params, bool) {
	var p params
	if json.Unmarshal(c.Params, &p.whole) != nil || len(p.whole) == 0 {
		return p, false
	}
	if p.fields, p.schema = p.whole["properties"].(map[string]any); !p.schema {
		p.fields = p.whole
	}
	return p, true
}

// required are the fields that the description asks for.
func (p params) required() []string {
	var required []string
	if list, ok := p.whole["required"].([]any); ok {
		for _, name := range list {
			if s, ok := name.(string); ok {
				required = append(required, s)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.fields)) {
		if field, ok := p.fields[name].(map[string]any); ok && field["required"] == true {
			required = append(required, name)
		}
	}
	return required
}
