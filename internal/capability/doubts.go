package capability

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// Call is how this program makes a call.
type Call struct {
	// ID is the name of the call in discovery.
	ID string
	// Method and Path are where it goes. A part of the path in braces stands for
	// a name.
	Method, Path string
	// Requests are bodies as they are sent; none if the call has no body.
	Requests []Request
}

// Request is one body.
type Request struct {
	// Name says which one, for people.
	Name string
	// Body is a JSON object.
	Body []byte
}

// Doubts compares the description with how the call is made, and returns what
// does not fit, one text each, safe for a terminal.
func (c *Capability) Doubts(call Call) []string {
	doubts := c.PlaceDoubts(call)
	if len(call.Requests) > 0 {
		doubts = append(doubts, c.requestDoubts(call)...)
	}
	return doubts
}

// PlaceDoubts compares method, path and availability alone.
func (c *Capability) PlaceDoubts(call Call) []string {
	var doubts []string
	doubt := func(format string, args ...any) { doubts = append(doubts, fmt.Sprintf(format, args...)) }
	if c.Method != "" && c.Method != call.Method {
		doubt("method is %s, the relay uses %s", strconv.Quote(c.Method), call.Method)
	}
	if c.Path != "" && unnamed(c.Path) != unnamed(call.Path) {
		doubt("path is %s, the relay uses %s", strconv.Quote(c.Path), call.Path)
	}
	if c.Available != nil && !*c.Available {
		doubt("%s is not available", call.ID)
	}
	return doubts
}

var braces = regexp.MustCompile(`\{[^{}/]*\}`)

// unnamed is a path without what its parts are called.
func unnamed(path string) string { return braces.ReplaceAllString(path, "{}") }

func (c *Capability) requestDoubts(call Call) []string {
	p, ok := c.params()
	if !ok {
		return []string{"the description of " + call.ID + " has no params"}
	}
	always, ever := members(call.Requests)
	var doubts []string
	for _, name := range ever {
		_, described := p.fields[name]
		switch {
		case described:
		case slices.Contains(always, name):
			doubts = append(doubts, "params has no field "+name)
		default:
			doubts = append(doubts, "params has no field "+name+", which some requests have")
		}
	}
	missing := slices.DeleteFunc(p.required(), func(name string) bool { return slices.Contains(always, name) })
	if len(missing) > 0 {
		doubts = append(doubts, "fields are required that the relay does not send: "+quoteAll(missing))
	}
	if len(doubts) > 0 || !p.schema {
		return doubts
	}
	for _, r := range call.Requests {
		if err := validate(c.Params, r.Body); err != nil {
			doubts = append(doubts, "the "+r.Name+" request of the relay does not fit: "+printable(pgtext.OneLine(err)))
		}
	}
	return doubts
}

// members lists the members that all bodies have, and those that any has.
func members(requests []Request) (always, ever []string) {
	count := map[string]int{}
	for _, r := range requests {
		var body map[string]json.RawMessage
		_ = json.Unmarshal(r.Body, &body) // made by this program
		for name := range body {
			count[name]++
		}
	}
	ever = slices.Sorted(maps.Keys(count))
	always = slices.DeleteFunc(slices.Clone(ever), func(name string) bool { return count[name] < len(requests) })
	return always, ever
}

// quoteAll writes names that somebody else chose.
func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = printable(name)
	}
	return strings.Join(quoted, ", ")
}

// printable makes text of the queue safe for a terminal.
func printable(text string) string {
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
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
