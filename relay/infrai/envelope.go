package infrai

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// envelope is what an answer of the queue says. Unknown members are ignored.
type envelope struct {
	ok        bool
	messageID string
	requestID string
	code      string
	text      string
}

// decodeEnvelope opens an answer. It reports false for what is no envelope: no
// JSON object, or one that does not say whether it is ok. It trusts nothing:
// ids and codes that do not look like ones are left out.
func decodeEnvelope(body string) (envelope, bool) {
	start := skipSpace(body, 0)
	if start == len(body) || body[start] != '{' {
		return envelope{}, false
	}
	var e envelope
	var said bool
	m := members{text: body, at: start + 1}
	for name, value, more := m.next(); more; name, value, more = m.next() {
		switch name {
		case "ok":
			e.ok, said = value == "true", value == "true" || value == "false"
		case "data":
			e.messageID = identifier(member(value, "message_id"))
		case "metadata":
			e.requestID = identifier(member(value, "request_id"))
		case "error":
			e.code = code(member(value, "code"))
			e.text = firstText(member(value, "message"), member(value, "hint"))
		}
	}
	end := m.end()
	return e, said && end >= 0 && skipSpace(body, end) == len(body)
}

// member returns the JSON of a member of an object, or nothing.
func member(object, wanted string) string {
	if !strings.HasPrefix(object, "{") {
		return ""
	}
	m := members{text: object, at: 1}
	for name, value, more := m.next(); more; name, value, more = m.next() {
		if name == wanted {
			return value
		}
	}
	return ""
}

// unquote returns the text of a JSON string, or nothing.
func unquote(value string) string {
	if !strings.HasPrefix(value, `"`) {
		return ""
	}
	if strings.IndexByte(value, '\\') < 0 {
		return value[1 : len(value)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, value) // scanned before
	return string(text)
}

// maxIdentifier is more than any id that was ever seen.
const maxIdentifier = 200

// identifier returns the text of an id, nothing if it cannot be one.
func identifier(value string) string {
	id := unquote(value)
	if len(id) > maxIdentifier || !graphic(id) {
		return ""
	}
	return id
}

// maxCode is the longest code that is believed.
const maxCode = 64

// code returns an error code such as QUEUE_NOT_FOUND. Something else in its
// place may be anything, even a piece of the payload.
func code(value string) string {
	c := unquote(value)
	for i := range len(c) {
		if c[i] != '_' && !isDigit(c[i]) && (c[i] < 'A' || c[i] > 'Z') {
			return ""
		}
	}
	if len(c) > maxCode {
		return ""
	}
	return c
}

func firstText(values ...string) string {
	for _, value := range values {
		if text := unquote(value); text != "" {
			return text
		}
	}
	return ""
}
