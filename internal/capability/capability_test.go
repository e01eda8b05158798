package capability_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/internal/capability"
)

// call is a call with two bodies, of which one has more.
var call = capability.Call{
	ID: "queue.make", Method: http.MethodPost, Path: "/v1/queue/make/{name}",
	Requests: []capability.Request{
		{Name: "smallest", Body: []byte(`{"a":"x"}`)},
		{Name: "fullest", Body: []byte(`{"a":"x","b":1}`)},
	},
}

func TestCapability_Doubts(t *testing.T) {
	t.Parallel()
	const schema = `"params":{"type":"object","required":["a"],"properties":{"a":{"type":"string"},"b":{"type":"number"}}}`
	for name, c := range map[string]struct {
		described string
		want      []string // parts of the doubts, in order
	}{
		"fits":                 {`{"method":"POST","path":"/v1/queue/make/{queue}","available":true,` + schema + `}`, nil},
		"tells little":         {`{` + schema + `}`, nil},
		"bare fields":          {`{"params":{"a":{"type":"string","required":true},"b":{"type":"number"}}}`, nil},
		"elsewhere":            {`{"method":"PUT","path":"/v2/make","available":false,` + schema + `}`, []string{`"PUT"`, `"/v2/make"`, "queue.make is not available"}},
		"no params":            {`{}`, []string{"has no params"}},
		"params of a list":     {`{"params":[1]}`, []string{"has no params"}},
		"a field less":         {`{"params":{"type":"object","properties":{"a":{"type":"string"}}}}`, []string{"no field b"}},
		"one is required":      {strings.Replace(`{`+schema+`}`, `["a"]`, `["a","b","c"]`, 1), []string{"required that the relay does not send: b, c"}},
		"required, bare":       {`{"params":{"a":{"type":"string"},"b":{"required":true}}}`, []string{"does not send: b"}},
		"of another type":      {strings.Replace(`{`+schema+`}`, `"number"`, `"string"`, 1), []string{"the fullest request of the relay does not fit"}},
		"a schema that is not": {strings.Replace(`{`+schema+`}`, `"object"`, `"thing"`, 1), []string{"does not fit", "does not fit"}},
		"a schema elsewhere":   {strings.Replace(`{`+schema+`}`, `{"type":"number"}`, `{"$ref":"http://127.0.0.1:1/x.json"}`, 1), []string{"does not fit", "does not fit"}},
		"escapes":              {`{"method":"\u001b[31m",` + strings.Replace(schema, `["a"]`, `["\u001b[31m","a"]`, 1) + `}`, []string{`\x1b[31m`, `\x1b[31m`}},
	} {
		described, err := capability.Parse([]byte(c.described))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		doubts := described.Doubts(call)
		if len(doubts) != len(c.want) {
			t.Errorf("%s: doubts are %q, want %d", name, doubts, len(c.want))
			continue
		}
		for i, doubt := range doubts {
			if !strings.Contains(doubt, c.want[i]) || strings.Contains(doubt, "\x1b") || strings.Contains(doubt, "\n") {
				t.Errorf("%s: doubt is %q, want %q on one line", name, doubt, c.want[i])
			}
		}
	}
}

func TestCapability_Fields(t *testing.T) {
	t.Parallel()
	want := []capability.Field{{Name: "a", Type: "string", Required: true}, {Name: "b"}}
	for _, params := range []string{
		`{"type":"object","required":["a",7],"properties":{"b":true,"a":{"type":"string"}}}`,
		`{"b":{"type":["string","null"]},"a":{"type":"string","required":true}}`,
	} {
		c := capability.Capability{Params: []byte(params)}
		if diff := cmp.Diff(want, c.Fields()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", params, diff)
		}
	}
	for _, params := range []string{``, `null`, `{}`, `"text"`} {
		if got := (&capability.Capability{Params: []byte(params)}).Fields(); len(got) != 0 {
			t.Errorf("%q has fields %v", params, got)
		}
	}
}

func TestParse_NotADescription(t *testing.T) {
	t.Parallel()
	for _, body := range []string{``, `null`, `[]`, `"text"`, `{"id":`, `<html>`, `{"method":7}`} {
		if c, err := capability.Parse([]byte(body)); err == nil {
			t.Errorf("%q is read as %+v", body, c)
		}
		if index, err := capability.ParseIndex([]byte(body)); err == nil {
			t.Errorf("%q is read as the index %+v", body, index)
		}
	}
	index, err := capability.ParseIndex([]byte(`{"capabilities":[{"id":"queue.get"},{"id":"queue.list"}],"total":2}`))
	if err != nil || len(index) != 2 || index[1].ID != "queue.list" {
		t.Errorf("index is %+v, %v", index, err)
	}
}
