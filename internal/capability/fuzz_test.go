package capability_test

import (
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/capability"
)

// Whatever the queue says of itself becomes lines that are safe for a terminal.
func FuzzDoubts(f *testing.F) {
	for _, params := range []string{
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string"},"b":{"type":"number"}}}`,
		`{"a":{"type":"string","required":true},"b":{"type":"number"}}`,
		`{"properties":{"a":{"$ref":"#"},"b":{"$ref":"#/properties/b"}}}`,
		`{"$schema":"http://127.0.0.1:1/","properties":{"a":{"pattern":"("},"b":{"multipleOf":0}}}`,
		`{"$id":"x:","properties":{"a":{"$dynamicRef":"#x"},"b":true},"allOf":[{"$ref":"#"}]}`,
	} {
		f.Add(`{"method":"POST","path":"/v1/{x}","available":true,"params":` + params + `}`)
	}
	f.Fuzz(func(t *testing.T, body string) {
		described, err := capability.Parse([]byte(body))
		if err != nil {
			return
		}
		described.Fields()
		for _, doubt := range described.Doubts(call) {
			if strings.ContainsFunc(doubt, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Errorf("doubt is %q", doubt)
			}
		}
	})
}
